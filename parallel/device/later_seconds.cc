#include "parallel/device/later_seconds.h"

#include <algorithm>
#include <iterator>

namespace rankwise {

LaterSeconds::LaterSeconds(Moment from, Moment to) {
  stretches_.emplace_back(std::move(from), std::move(to));
}

LaterSeconds& LaterSeconds::operator+=(LaterSeconds other) {
  known_ += other.known_;
  std::move(other.stretches_.begin(), other.stretches_.end(),
            std::back_inserter(stretches_));
  return *this;
}

bool LaterSeconds::reached() const {
  return std::all_of(stretches_.begin(), stretches_.end(),
                     [](const std::pair<Moment, Moment>& stretch) {
                       return stretch.first.reached() &&
                              stretch.second.reached();
                     });
}

double LaterSeconds::Wait() const {
  double seconds = known_;
  for (const auto& [from, to] : stretches_)
    seconds += WaitForSecondsBetween(from, to);
  return seconds;
}

}  // namespace rankwise

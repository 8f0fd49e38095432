#include <algorithm>
#include <utility>

#include "analysis/plan/step.h"

namespace rankwise::plan {
namespace {

constexpr double kNotThere = -1;
constexpr size_t kPrefetch = 1;

}  // namespace

void LinkRun::Compute(double seconds) {
  computed_ += seconds;
  const double in_flight = std::max(0.0, link_free_ - now_);
  const double meanwhile = in_flight * speed_;
  now_ +=
      seconds < meanwhile ? seconds / speed_ : in_flight + seconds - meanwhile;
}

double LinkRun::Start(double seconds) {
  link_free_ = std::max(link_free_, now_) + seconds;
  return link_free_;
}

UnitsRun::UnitsRun(std::vector<UnitSeconds> units, int zero,
                   double speed_during_communication)
    : units_(std::move(units)),
      zero_(zero),
      link_(speed_during_communication),
      there_(units_.size(), kNotThere) {}

void UnitsRun::Gather(size_t unit) {
  if (there_[unit] == kNotThere)
    there_[unit] = link_.Start(units_[unit].gather);
}

void UnitsRun::Need(size_t unit) {
  Gather(unit);
  link_.WaitUntil(there_[unit]);
}

void UnitsRun::Forward() {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    Need(unit);
    if (unit + kPrefetch < units_.size()) Gather(unit + kPrefetch);
    link_.Compute(units_[unit].forward);
    const bool is_last = unit + 1 == units_.size();
    if (zero_ == 3 && !is_last) there_[unit] = kNotThere;
  }
}

void UnitsRun::Backward(bool reduces) {
  for (size_t unit = units_.size(); unit-- > 0;) {
    Need(unit);
    if (unit >= kPrefetch) Gather(unit - kPrefetch);
    link_.Compute(units_[unit].backward);
    if (zero_ == 3) there_[unit] = kNotThere;
    if (!reduces) continue;
    while (reducing_.size() > kPrefetch) {
      link_.WaitUntil(reducing_.front());
      reducing_.erase(reducing_.begin());
    }
    reducing_.push_back(link_.Start(units_[unit].scatter));
  }
}

void UnitsRun::Finish() {
  for (const double end : reducing_) link_.WaitUntil(end);
  reducing_.clear();
  there_.assign(units_.size(), kNotThere);
}

}  // namespace rankwise::plan

#include "parallel/clock/virtual_time.h"

#include <algorithm>
#include <utility>

namespace rankwise {
namespace {

thread_local VirtualTime* of_this_thread = nullptr;

}  // namespace

VirtualTime::VirtualTime() { of_this_thread = this; }

VirtualTime::~VirtualTime() { of_this_thread = nullptr; }

VirtualTime* VirtualTime::OfThisThread() { return of_this_thread; }

void VirtualTime::Advance(double seconds) {
  const auto rounded = std::chrono::round<TimePoint::duration>(
      std::chrono::duration<double>(seconds));
  now_ += std::max(rounded, TimePoint::duration::zero());
}

void VirtualTime::RunAt(TimePoint when, const std::function<void()>& event) {
  const TimePoint before = std::exchange(now_, when);
  event();
  now_ = std::max(before, when);
}

}  // namespace rankwise

#include "parallel/clock/rank_clock.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "parallel/clock/steady_time.h"

namespace rankwise {
namespace {

// Sleepers wake up to 0.1 ms late; who spins for long loses the core where
// others want it.
constexpr double kSpinSeconds = 3e-4;

thread_local VirtualTime* of_this_thread = nullptr;

double VirtualNow() {
  return std::chrono::duration<double>(
             VirtualTime::OfThisThread()->now().time_since_epoch())
      .count();
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

// 52 bits: a double holds them exactly.
double HostClockId() {
  const std::string boot = BootId();
  if (boot.empty()) return 0;
  std::error_code none;
  const std::string time_namespace =
      std::filesystem::read_symlink("/proc/self/ns/time", none).string();
  return static_cast<double>(std::hash<std::string>()(boot + time_namespace) >>
                             12);
}

}  // namespace

RankClock HostClock() {
  if (VirtualTime::OfThisThread() != nullptr) return {VirtualNow, 1};
  static const double id = HostClockId();
  return {SteadySeconds, id};
}

void WaitUntil(const RankClock& clock, double time) {
  if (VirtualTime* own = VirtualTime::OfThisThread()) {
    own->Advance(time - clock.now());
    return;
  }
  for (double left = time - clock.now(); left > 0; left = time - clock.now()) {
    if (left > kSpinSeconds) {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(left - kSpinSeconds));
    } else {
      sched_yield();
    }
  }
}

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

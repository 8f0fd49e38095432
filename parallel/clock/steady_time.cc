#include "parallel/clock/steady_time.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace rankwise {
namespace {

// Sleeping threads wake up to 0.1 ms late, so the end of a wait spins; a longer
// spin would lose the core to other processes.
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

// 52 bits, which a double represents exactly; 0 if the boot is unknown.
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

bool RunWithin(absl::Duration patience, std::function<void()> action) {
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> ended = done->get_future();
  std::thread([action = std::move(action), done] {
    try {
      action();
    } catch (const std::exception&) {
      // Callers that need the result inspect the state that `action` left.
    }
    done->set_value();
  }).detach();
  // Below the limit of the clock's range.
  constexpr absl::Duration kLongest = absl::Hours(24 * 365);
  return ended.wait_for(absl::ToChronoMilliseconds(
             std::min(patience, kLongest))) == std::future_status::ready;
}

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

#include "parallel/clock/rank_clock.h"

#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

#include "parallel/clock/steady_time.h"
#include "parallel/clock/virtual_time.h"

namespace rankwise {
namespace {

// Sleepers wake up to 0.1 ms late; who spins for long loses the core where
// others want it.
constexpr double kSpinSeconds = 3e-4;

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

std::string TimeNamespace() {
  char target[PATH_MAX];
  const ssize_t size = readlink("/proc/self/ns/time", target, sizeof(target));
  return size < 0 ? "" : std::string(target, size);
}

// FNV-1a, the upper 52 bits: a double holds them exactly.
double Hash(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return static_cast<double>(hash >> 12);
}

double HostClockId() {
  const std::string boot = BootId();
  return boot.empty() ? 0 : Hash(boot + TimeNamespace());
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

}  // namespace rankwise

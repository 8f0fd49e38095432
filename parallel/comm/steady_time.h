// Time for waits, by the steady clock: setting the machine's clock neither ends
// a wait early nor makes it last for ever.
#ifndef RANKWISE_PARALLEL_COMM_STEADY_TIME_H_
#define RANKWISE_PARALLEL_COMM_STEADY_TIME_H_

#include <chrono>

#include "absl/time/time.h"

namespace rankwise {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

inline absl::Duration ElapsedSince(SteadyTime start) {
  return absl::FromChrono(SteadyNow() - start);
}

// The moment `patience` after its construction; never for InfiniteDuration().
class Deadline {
 public:
  explicit Deadline(absl::Duration patience) : patience_(patience) {}

  // Negative once it has passed.
  absl::Duration left() const { return patience_ - ElapsedSince(start_); }
  bool passed() const { return left() <= absl::ZeroDuration(); }

 private:
  SteadyTime start_ = SteadyNow();
  absl::Duration patience_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_STEADY_TIME_H_

// One thing that a GPU is timed at.
#ifndef RANKWISE_COMM_BENCH_CUDA_MEASUREMENT_H_
#define RANKWISE_COMM_BENCH_CUDA_MEASUREMENT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rankwise::micro {

// Not thread-safe. All block until done; errors of the device are Internal.
class Measurement {
 public:
  virtual ~Measurement() = default;

  // Makes what an earlier Run left unlike what a Run must leave.
  virtual absl::Status Clear() = 0;
  // Does it; seconds, by the clock that the measurement is defined with.
  virtual absl::StatusOr<double> Run() = 0;
  // DataLoss, with the place, where the last Run left something else than it
  // must. Once after each Clear.
  virtual absl::Status Check() = 0;
};

// One Run that does not count (first use: code is loaded, clocks rise), checked
// from a clear state.
inline absl::Status WarmUpAndCheck(Measurement& measurement) {
  absl::Status status = measurement.Clear();
  if (status.ok()) status = measurement.Run().status();
  return status.ok() ? measurement.Check() : status;
}

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_MEASUREMENT_H_

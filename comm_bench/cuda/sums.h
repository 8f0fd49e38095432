// The reduction kernel of sum_kernel.h, measured.
#ifndef RANKWISE_COMM_BENCH_CUDA_SUMS_H_
#define RANKWISE_COMM_BENCH_CUDA_SUMS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "comm_bench/cuda/measurement.h"

namespace rankwise::micro {

enum class SumOf { kFloat, kBfloat16 };

// Of as many whole numbers as are in `bytes`, on the current GPU, which has so
// many multiprocessors; both passes, timed by events. The sum must be exact.
absl::StatusOr<std::unique_ptr<Measurement>> MakeSum(SumOf what, int64_t bytes,
                                                     int multiprocessors);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_SUMS_H_

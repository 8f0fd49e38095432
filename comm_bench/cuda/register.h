// The benchmarks of the binary `micro`.
#ifndef RANKWISE_COMM_BENCH_CUDA_REGISTER_H_
#define RANKWISE_COMM_BENCH_CUDA_REGISTER_H_

#include "absl/status/status.h"

namespace rankwise::micro {

// Registers every measurement of the first visible GPU, and of the links
// between all of them, with Google Benchmark, and adds what the GPU and the
// build are to its context. `*failed`, which must outlive the benchmarks,
// becomes true when one fails. NotFound, with the reason, where there is no GPU
// or the build is without CUDA.
absl::Status RegisterMeasurements(bool* failed);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_REGISTER_H_

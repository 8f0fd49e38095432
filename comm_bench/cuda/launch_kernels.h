// Kernels that do next to nothing.
#ifndef RANKWISE_COMM_BENCH_CUDA_LAUNCH_KERNELS_H_
#define RANKWISE_COMM_BENCH_CUDA_LAUNCH_KERNELS_H_

#include <cstdint>

#include "comm_bench/cuda/cuda_stream.h"

namespace rankwise::micro {

// One thread, which adds 1 to `*count`, on the GPU, or does nothing where it is
// null. CUDA keeps an error for cudaGetLastError.
void LaunchTick(int32_t* count, CudaStream stream);

// One thread, which keeps the stream busy for so many cycles of the GPU's clock
// (some 2 to a nanosecond), so that the host can give it work ahead.
void LaunchHold(int64_t cycles, CudaStream stream);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_LAUNCH_KERNELS_H_

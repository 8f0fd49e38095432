// A copy by threads, against the copy engines' and the memory's bound.
#ifndef RANKWISE_COMM_BENCH_CUDA_COPY_KERNEL_H_
#define RANKWISE_COMM_BENCH_CUDA_COPY_KERNEL_H_

#include <cstdint>

#include "comm_bench/cuda/cuda_stream.h"

namespace rankwise::micro {

// Starts copying `bytes` within the current GPU; the buffers must not overlap,
// and may be aligned in any way. Each thread has four of the widest words that
// both buffers allow under way at once. CUDA keeps an error for
// cudaGetLastError.
void LaunchCopy(const uint8_t* from, uint8_t* to, int64_t bytes,
                CudaStream stream);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_COPY_KERNEL_H_

// The sum of many numbers: as much reading as the memory gives, and one number
// written.
#ifndef RANKWISE_COMM_BENCH_CUDA_SUM_KERNEL_H_
#define RANKWISE_COMM_BENCH_CUDA_SUM_KERNEL_H_

#include <cstdint>

#include "comm_bench/cuda/cuda_stream.h"

namespace rankwise::micro {

// Of the first pass, and floats of scratch: enough that every multiprocessor
// has several at work.
int SumBlocks(int multiprocessors);

// Start adding up `count` values on the current GPU, in float, into `*sum`.
// `values` must be aligned to its own type. Two passes, no atomic operations:
// the same values, alignment and `blocks` (SumBlocks) give the same bits
// always. `scratch`: `blocks` floats. All pointers are the GPU's. CUDA keeps an
// error for cudaGetLastError.
void LaunchSum(const float* values, int64_t count, int blocks, float* scratch,
               float* sum, CudaStream stream);
// Bits of bfloat16.
void LaunchSumOfBfloat16(const uint16_t* values, int64_t count, int blocks,
                         float* scratch, float* sum, CudaStream stream);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_SUM_KERNEL_H_

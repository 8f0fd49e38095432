// The kernels, for host code of either build: a copy by threads, against the
// copy engines' and the memory's bound; the sum of many numbers, which is as
// much reading as the memory gives and one number written; and kernels that do
// next to nothing. All start their work in a stream of the current GPU, and
// leave an error of it to cudaGetLastError.
#ifndef RANKWISE_COMM_BENCH_CUDA_KERNELS_H_
#define RANKWISE_COMM_BENCH_CUDA_KERNELS_H_

#include <cstdint>

struct CUstream_st;

namespace rankwise::micro {

using CudaStream = CUstream_st*;  // cudaStream_t

// Starts copying `bytes` within the current GPU; the buffers must not overlap,
// and are aligned to 16 bytes. Each thread has four words of 16 bytes under way
// at once.
void LaunchCopy(const uint8_t* from, uint8_t* to, int64_t bytes,
                CudaStream stream);

// Of the first pass, and floats of scratch: enough that every multiprocessor
// has several at work.
int SumBlocks(int multiprocessors);

// Start adding up `count` values on the current GPU, in float, into `*sum`.
// `values` are aligned to 16 bytes. Two passes, no atomic operations: the same
// values and `blocks` (SumBlocks) give the same bits always. `scratch`:
// `blocks` floats. All pointers are the GPU's.
void LaunchSum(const float* values, int64_t count, int blocks, float* scratch,
               float* sum, CudaStream stream);
// Bits of bfloat16.
void LaunchSumOfBfloat16(const uint16_t* values, int64_t count, int blocks,
                         float* scratch, float* sum, CudaStream stream);

// One thread, which adds 1 to `*count`, on the GPU, or does nothing where it is
// null.
void LaunchTick(int32_t* count, CudaStream stream);

// One thread, which keeps the stream busy for `cycles` of the GPU's clock (some
// 2 to a nanosecond), so that the host can give it work ahead.
void LaunchHold(int64_t cycles, CudaStream stream);

// "13.0.88".
const char* NvccVersion();

// Of the machine code that the current GPU runs: 90 for sm_90. That of the
// nearest one in the binary, or what the driver made of PTX. 0 where CUDA does
// not tell.
int KernelArchitecture();

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_KERNELS_H_

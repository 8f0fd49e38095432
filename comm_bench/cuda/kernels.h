// The kernels, callable from host code of both builds: a copy by threads,
// compared with the copy engines and with memory bandwidth; the sum of many
// numbers, which reads at memory bandwidth and writes one number; and nearly
// empty kernels. All start their work in a stream of the current GPU; errors
// are left to cudaGetLastError.
#ifndef RANKWISE_COMM_BENCH_CUDA_KERNELS_H_
#define RANKWISE_COMM_BENCH_CUDA_KERNELS_H_

#include <cstdint>

struct CUstream_st;

namespace rankwise::micro {

using CudaStream = CUstream_st*;  // cudaStream_t

// Starts copying `bytes` within the current GPU; the buffers must not overlap,
// and are aligned to 16 bytes. Each thread has four 16-byte words in flight at
// once.
void LaunchCopy(const uint8_t* from, uint8_t* to, int64_t bytes,
                CudaStream stream);

// Returns the number of blocks of the first pass, and of scratch floats: enough
// to occupy every multiprocessor with several blocks.
int SumBlocks(int multiprocessors);

// Start adding up `count` values on the current GPU, in float, into `*sum`.
// `values` are aligned to 16 bytes. Two passes without atomics: bitwise
// reproducible for equal values and `blocks` (SumBlocks). `scratch` has
// `blocks` floats. All pointers are the GPU's.
void LaunchSum(const float* values, int64_t count, int blocks, float* scratch,
               float* sum, CudaStream stream);
// `values` are the bits of bfloat16.
void LaunchSumOfBfloat16(const uint16_t* values, int64_t count, int blocks,
                         float* scratch, float* sum, CudaStream stream);

// Starts one thread that adds 1 to `*count` on the GPU, or does nothing if
// `count` is nullptr.
void LaunchTick(int32_t* count, CudaStream stream);

// Starts one thread that keeps the stream busy for `cycles` of the GPU's clock
// (about 2 per nanosecond), so that the host can enqueue work ahead.
void LaunchHold(int64_t cycles, CudaStream stream);

// Returns "13.0.88".
const char* NvccVersion();

// Returns the architecture of the machine code run by the current GPU: 90 for
// sm_90. It is the nearest one in the binary, or the driver's compilation of
// PTX. 0 if CUDA does not report it.
int KernelArchitecture();

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_KERNELS_H_

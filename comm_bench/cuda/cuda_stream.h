// CUDA's stream, by name only.
#ifndef RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_
#define RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_

struct CUstream_st;

namespace rankwise {

using CudaStream = CUstream_st*;  // cudaStream_t

}  // namespace rankwise

#endif  // RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_

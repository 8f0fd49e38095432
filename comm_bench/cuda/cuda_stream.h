// CUDA's stream, by name only.
#ifndef RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_
#define RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_

struct CUstream_st;

namespace rankwise::micro {

using CudaStream = CUstream_st*;  // cudaStream_t

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_CUDA_STREAM_H_

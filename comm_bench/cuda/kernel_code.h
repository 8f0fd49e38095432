// How the kernels were compiled, and for which GPU what runs of them is.
#ifndef RANKWISE_COMM_BENCH_CUDA_KERNEL_CODE_H_
#define RANKWISE_COMM_BENCH_CUDA_KERNEL_CODE_H_

namespace rankwise::micro {

// "13.0.88".
const char* NvccVersion();

// Of the machine code that the current GPU runs: 90 for sm_90. That of the
// nearest one in the binary, or what the driver made of PTX. 0 where CUDA does
// not tell.
int KernelArchitecture();

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_KERNEL_CODE_H_

// What a result of the first visible GPU must be read with.
#ifndef RANKWISE_COMM_BENCH_CUDA_GPU_CONTEXT_H_
#define RANKWISE_COMM_BENCH_CUDA_GPU_CONTEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "comm_bench/cuda/limit.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {

// Names and values: the GPU, its memory and limits, the driver, CUDA and nvcc.
// What is not known is said to be "unknown".
std::vector<std::pair<std::string, std::string>> GpuContext(
    const GpuFacts& gpu);

// Of the link between the host and visible GPU `index`.
Limit HostLinkLimitOfGpu(int index);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_GPU_CONTEXT_H_

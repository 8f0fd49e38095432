#include "comm_bench/cuda/kernels.h"

#define RANKWISE_TEXT(number) #number
#define RANKWISE_VERSION(major, minor, build) \
  RANKWISE_TEXT(major) "." RANKWISE_TEXT(minor) "." RANKWISE_TEXT(build)

namespace rankwise::micro {
namespace {

__global__ void Nothing() {}

}  // namespace

const char* NvccVersion() {
  return RANKWISE_VERSION(__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__,
                          __CUDACC_VER_BUILD__);
}

int KernelArchitecture() {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, Nothing) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return attributes.binaryVersion;
}

}  // namespace rankwise::micro

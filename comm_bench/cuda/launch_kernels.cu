#include "comm_bench/cuda/kernels.h"

namespace rankwise::micro {
namespace {

__global__ void Tick(int32_t* count) {
  if (count != nullptr) ++*count;
}

__global__ void Hold(int64_t cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

}  // namespace

void LaunchTick(int32_t* count, CudaStream stream) {
  Tick<<<1, 1, 0, stream>>>(count);
}

void LaunchHold(int64_t cycles, CudaStream stream) {
  Hold<<<1, 1, 0, stream>>>(cycles);
}

}  // namespace rankwise::micro

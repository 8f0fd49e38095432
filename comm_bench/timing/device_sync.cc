#include "comm_bench/timing/device_sync.h"

#include "ATen/detail/CUDAHooksInterface.h"

namespace rankwise::comm_bench {

void SynchronizeDevice(c10::Device device) {
  if (device.is_cuda()) {
    at::detail::getCUDAHooks().deviceSynchronize(device.index());
  }
}

}  // namespace rankwise::comm_bench

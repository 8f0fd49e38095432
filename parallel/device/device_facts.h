// Properties of this build and of the machine's GPUs.
#ifndef RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_
#define RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

struct BuildFacts {
  bool has_cuda = false;
  std::string cuda;  // "13.0"; "" without CUDA
  std::string nccl;  // "2.28.9": version of the loaded library
};

BuildFacts ThisBuild();

// Returns the number of GPUs visible to this process (CUDA_VISIBLE_DEVICES); 0
// without CUDA, a driver or a GPU. Queries the driver once.
int VisibleGpus();

// Returns why none is visible: "this binary was built without CUDA; build it
// with --config=cuda", "no NVIDIA driver", "no GPU is visible
// (CUDA_VISIBLE_DEVICES=-1 may hide them)"; "" if one is.
std::string WhyNoGpu();

// Name of the devices of tests/virtual_gpu, which compute almost nothing and
// whose times are meaningless.
inline constexpr char kVirtualGpuName[] = "virtual GPU";

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-...": equal in every process
  std::string pci_bus_id;    // "0000:3b:00.0"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  // Peak memory bandwidth: clock x bus width x 2 (double data rate); 0 if the
  // driver does not report it.
  double memory_bytes_per_second = 0;
};

// NotFound, with the number of visible GPUs, if `index` is not visible.
absl::StatusOr<GpuFacts> DescribeGpu(int index);

// False for an index that is not visible.
inline bool IsVirtualGpu(int index) {
  const absl::StatusOr<GpuFacts> gpu = DescribeGpu(index);
  return gpu.ok() && gpu->name == kVirtualGpuName;
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_

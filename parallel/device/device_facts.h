// What this build and the machine's GPUs are.
#ifndef RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_
#define RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

struct BuildFacts {
  bool has_cuda = false;
  std::string cuda;  // "13.0"; "" without CUDA
  std::string nccl;  // "2.28.9": of the library that is loaded
};

BuildFacts ThisBuild();

// Visible to this process (CUDA_VISIBLE_DEVICES); 0 without CUDA, a driver or a
// GPU. Asks the driver once.
int VisibleGpus();

// Why there are none: "this binary was built without CUDA; build it with
// --config=cuda", "no NVIDIA driver", "no GPU is visible
// (CUDA_VISIBLE_DEVICES=-1 may hide them)"; "" where there are some.
std::string WhyNoGpu();

// The name of the devices of tests/virtual_gpu, which compute next to nothing
// and whose times mean nothing.
inline constexpr char kVirtualGpuName[] = "virtual GPU";

struct GpuFacts {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // "GPU-...": the same in every process
  std::string pci_bus_id;    // "0000:3b:00.0"
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  // What the memory can move: clock x bus width x 2 (double data rate); 0 where
  // the driver does not tell.
  double memory_bytes_per_second = 0;
};

// NotFound for an index that is not visible, with how many are.
absl::StatusOr<GpuFacts> DescribeGpu(int index);

// False for an index that is not visible.
inline bool IsVirtualGpu(int index) {
  const absl::StatusOr<GpuFacts> gpu = DescribeGpu(index);
  return gpu.ok() && gpu->name == kVirtualGpuName;
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_DEVICE_FACTS_H_

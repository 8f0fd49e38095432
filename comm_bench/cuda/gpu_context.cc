#include "comm_bench/cuda/gpu_context.h"

#include <cuda_runtime_api.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/cuda/kernel_code.h"
#include "comm_bench/cuda/pcie_link.h"

namespace rankwise::micro {
namespace {

constexpr char kPciDevices[] = "/sys/bus/pci/devices";
constexpr char kDriverVersion[] = "/sys/module/nvidia/version";
constexpr char kUnknown[] = "unknown";
constexpr double kGiga = 1e9;

std::string RateText(double bytes_per_second) {
  if (bytes_per_second <= 0) return kUnknown;
  return absl::StrFormat("%.1f GB/s", bytes_per_second / kGiga);
}

std::string Driver() {
  std::ifstream file(kDriverVersion);
  std::string line;
  return std::getline(file, line) ? line : kUnknown;
}

std::string CudaOfDriver() {
  constexpr int kMajor = 1000, kMinor = 10;
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) return kUnknown;
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor);
}

// Whether the GPU goes by the host's page tables (Grace Hopper and its kin).
bool IsCoherent(int index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value,
                             cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                             index) != cudaSuccess) {
    (void)cudaGetLastError();
  }
  return value != 0;
}

std::string KernelCode() {
  const int architecture = KernelArchitecture();
  return architecture == 0 ? kUnknown : absl::StrCat("sm_", architecture);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> GpuContext(
    const GpuFacts& gpu) {
  const Limit link = HostLinkLimitOfGpu(0);
  return {
      {"gpu", gpu.name},
      {"gpu_uuid", gpu.uuid},
      {"compute_capability", absl::StrCat(gpu.major, ".", gpu.minor)},
      {"multiprocessors", absl::StrCat(gpu.multiprocessors)},
      {"memory_bytes", absl::StrCat(gpu.memory_bytes)},
      {"l2_bytes", absl::StrCat(gpu.l2_bytes)},
      {"memory_limit", RateText(gpu.memory_bytes_per_second)},
      {"host_link_limit",
       link.bytes_per_second > 0
           ? absl::StrCat(RateText(link.bytes_per_second), ", ", link.what)
           : link.what},
      {"driver", Driver()},
      {"cuda_of_driver", CudaOfDriver()},
      {"cuda", ThisBuild().cuda},
      {"nvcc", NvccVersion()},
      {"kernel_code", KernelCode()},
  };
}

Limit HostLinkLimitOfGpu(int index) {
  const absl::StatusOr<GpuFacts> gpu = DescribeGpu(index);
  if (!gpu.ok()) return HostLinkLimit(false, gpu.status());
  return HostLinkLimit(IsCoherent(index),
                       ReadPcieLink(kPciDevices, gpu->pci_bus_id));
}

}  // namespace rankwise::micro

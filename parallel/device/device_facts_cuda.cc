#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "parallel/device/device_facts.h"

namespace rankwise {
namespace {

struct Count {
  int gpus = 0;
  cudaError_t error = cudaSuccess;
};

const Count& CountGpus() {
  static const Count kCount = [] {
    Count count;
    count.error = cudaGetDeviceCount(&count.gpus);
    if (count.error != cudaSuccess) {
      count.gpus = 0;
      (void)cudaGetLastError();
    }
    return count;
  }();
  return kCount;
}

std::string CudaText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// CUDA reports the same error for an outdated and for a missing driver.
std::string InsufficientDriver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess || version == 0) {
    (void)cudaGetLastError();
    return "no NVIDIA driver";
  }
  return absl::StrCat("the NVIDIA driver is for CUDA ", CudaText(version),
                      "; this binary needs one for ", CudaText(CUDART_VERSION));
}

std::string NcclVersion() {
  constexpr int kMajor = 10000, kMinor = 100;
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "";
  return absl::StrCat(version / kMajor, ".", version % kMajor / kMinor, ".",
                      version % kMinor);
}

// Formats a UUID like nvidia-smi: "GPU-" and groups of digits.
std::string UuidText(const cudaUUID_t& uuid) {
  const std::string hex =
      absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-",
                      hex.substr(12, 4), "-", hex.substr(16, 4), "-",
                      hex.substr(20));
}

int Attribute(cudaDeviceAttr attribute, int index) {
  int value = 0;
  if (cudaDeviceGetAttribute(&value, attribute, index) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return value;
}

double MemoryBytesPerSecond(int index) {
  constexpr double kHertz = 1e3, kBitsPerByte = 8, kTransfersPerClock = 2;
  return Attribute(cudaDevAttrMemoryClockRate, index) * kHertz *
         Attribute(cudaDevAttrGlobalMemoryBusWidth, index) / kBitsPerByte *
         kTransfersPerClock;
}

}  // namespace

BuildFacts ThisBuild() {
  return {.has_cuda = true,
          .cuda = CudaText(CUDART_VERSION),
          .nccl = NcclVersion()};
}

int VisibleGpus() { return CountGpus().gpus; }

std::string WhyNoGpu() {
  const Count& count = CountGpus();
  if (count.gpus > 0) return "";
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const std::string hidden =
      visible == nullptr
          ? ""
          : absl::StrCat(" (CUDA_VISIBLE_DEVICES=", visible, " may hide them)");
  if (count.error == cudaSuccess || count.error == cudaErrorNoDevice) {
    return absl::StrCat("no GPU is visible", hidden);
  }
  if (count.error == cudaErrorInsufficientDriver) return InsufficientDriver();
  return absl::StrCat("the CUDA driver says: ", cudaGetErrorString(count.error),
                      hidden);
}

absl::StatusOr<GpuFacts> DescribeGpu(int index) {
  if (index < 0 || index >= VisibleGpus()) {
    return absl::NotFoundError(VisibleGpus() == 0
                                   ? WhyNoGpu()
                                   : absl::StrCat("there is no GPU ", index,
                                                  ": this process sees ",
                                                  VisibleGpus()));
  }
  cudaDeviceProp properties;
  const cudaError_t error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat(
        "querying GPU ", index, " failed: ", cudaGetErrorString(error)));
  }
  GpuFacts facts;
  facts.name = properties.name;
  facts.uuid = UuidText(properties.uuid);
  std::array<char, 32> bus_id = {};
  if (cudaDeviceGetPCIBusId(bus_id.data(), bus_id.size(), index) ==
      cudaSuccess) {
    facts.pci_bus_id = bus_id.data();
  }
  facts.major = properties.major;
  facts.minor = properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.l2_bytes = properties.l2CacheSize;
  facts.memory_bytes_per_second = MemoryBytesPerSecond(index);
  return facts;
}

}  // namespace rankwise

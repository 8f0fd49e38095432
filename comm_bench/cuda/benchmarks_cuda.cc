#include <cuda_runtime_api.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "benchmark/benchmark.h"
#include "comm_bench/cuda/benchmarks.h"
#include "comm_bench/cuda/kernels.h"
#include "parallel/device/device_facts.h"
#include "third_party/absl/status_macros.h"

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

// Whether the first GPU uses the host's page tables, like Grace Hopper.
bool IsCoherent() {
  constexpr int kFirst = 0;
  int value = 0;
  if (cudaDeviceGetAttribute(&value,
                             cudaDevAttrPageableMemoryAccessUsesHostPageTables,
                             kFirst) != cudaSuccess) {
    (void)cudaGetLastError();
  }
  return value != 0;
}

// Returns the limit of the link between the host and the first visible GPU.
Limit LimitOfHostLink(const GpuFacts& gpu) {
  return HostLinkLimit(IsCoherent(), ReadPcieLink(kPciDevices, gpu.pci_bus_id));
}

std::string KernelCode() {
  const int architecture = KernelArchitecture();
  return architecture == 0 ? kUnknown : absl::StrCat("sm_", architecture);
}

constexpr int64_t kMiB = int64_t{1} << 20;

class Registrar {
 public:
  explicit Registrar(bool* failed) : failed_(failed) {}

  // A fixed number of iterations avoids repeated setup of the benchmark.
  void Add(const std::string& name, const MakeMeasurement& make,
           const Traffic& traffic, int64_t iterations) {
    const auto run = [failed = failed_, make,
                      traffic](benchmark::State& state) {
      if (!RunMeasurement(state, make, traffic)) *failed = true;
    };
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(iterations);
  }

  // Adds `name`/bytes; moves about 8 GiB in total.
  void AddTransfer(const std::string& name, int64_t bytes,
                   const MakeMeasurement& make, const Traffic& traffic) {
    constexpr int64_t kInAll = 8192 * kMiB;
    Add(absl::StrCat(name, "/", bytes), make, traffic,
        std::clamp<int64_t>(kInAll / bytes, 10, 500));
  }

 private:
  bool* failed_;
};

void AddHostCopies(Registrar& registrar, const GpuFacts& gpu) {
  const Limit limit = LimitOfHostLink(gpu);
  for (const HostCopy copy : {HostCopy{.to_gpu = true, .pinned = true},
                              HostCopy{.to_gpu = true, .pinned = false},
                              HostCopy{.to_gpu = false, .pinned = true},
                              HostCopy{.to_gpu = false, .pinned = false}}) {
    const std::string name =
        absl::StrCat(copy.to_gpu ? "HostToGpu/" : "GpuToHost/",
                     copy.pinned ? "pinned" : "pageable");
    for (const int64_t bytes : {kMiB, 16 * kMiB, 256 * kMiB}) {
      registrar.AddTransfer(name, bytes,
                            [copy, bytes] { return MakeHostCopy(copy, bytes); },
                            {bytes, limit});
    }
  }
}

// Buffers bound by memory; the last exceeds any cache by far.
const std::vector<int64_t>& BufferBytes() {
  static const auto& sizes =
      *new std::vector<int64_t>{16 * kMiB, 256 * kMiB, 1024 * kMiB};
  return sizes;
}

void AddGpuCopies(Registrar& registrar, const GpuFacts& gpu) {
  for (const auto& [name, by] :
       {std::pair("GpuCopy/memcpy", GpuCopy::kMemcpy),
        std::pair("GpuCopy/kernel", GpuCopy::kKernel)}) {
    for (const int64_t bytes : BufferBytes()) {
      const int64_t moved = 2 * bytes;  // read and written
      registrar.AddTransfer(name, bytes,
                            [by = by, bytes] { return MakeGpuCopy(by, bytes); },
                            {moved, MemoryLimit(gpu, moved)});
    }
  }
}

void AddSums(Registrar& registrar, const GpuFacts& gpu) {
  for (const auto& [name, what] : {std::pair("Sum/fp32", SumOf::kFloat),
                                   std::pair("Sum/bf16", SumOf::kBfloat16)}) {
    for (const int64_t bytes : BufferBytes()) {
      registrar.AddTransfer(name, bytes,
                            [what = what, bytes, blocks = gpu.multiprocessors] {
                              return MakeSum(what, bytes, blocks);
                            },
                            {bytes, MemoryLimit(gpu, bytes)});
    }
  }
}

void AddLaunches(Registrar& registrar) {
  constexpr int kIterations = 100;
  for (const auto& [how_name, how] : {std::pair("kernel", Launching::kKernels),
                                      std::pair("graph", Launching::kGraph)}) {
    for (const auto& [what_name, what] :
         {std::pair("Launch/host_time/", LaunchTime::kOfHost),
          std::pair("Launch/between_kernels/", LaunchTime::kBetweenKernels),
          std::pair("Launch/to_finish/", LaunchTime::kToFinish)}) {
      registrar.Add(
          absl::StrCat(what_name, how_name),
          [how = how, what = what] { return MakeLaunch(how, what); }, {},
          kIterations);
    }
  }
}

void AddPeerCopies(Registrar& registrar) {
  const Limit limit{
      .what = "limit unknown: the links between GPUs do not report theirs"};
  for (int from = 0; from < VisibleGpus(); ++from) {
    for (int to = 0; to < VisibleGpus(); ++to) {
      if (from == to) continue;
      for (const int64_t bytes : {16 * kMiB, 256 * kMiB}) {
        registrar.AddTransfer(
            absl::StrCat("PeerCopy/", from, "/", to), bytes,
            [from, to, bytes] { return MakePeerCopy(from, to, bytes); },
            {bytes, limit});
      }
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> GpuContext(
    const GpuFacts& gpu) {
  const Limit link = LimitOfHostLink(gpu);
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

absl::Status RegisterMeasurements(bool* failed) {
  ASSIGN_OR_RETURN(const GpuFacts gpu, DescribeGpu(0));
  for (const auto& [key, value] : GpuContext(gpu))
    benchmark::AddCustomContext(key, value);
  Registrar registrar(failed);
  AddHostCopies(registrar, gpu);
  AddGpuCopies(registrar, gpu);
  AddSums(registrar, gpu);
  AddLaunches(registrar);
  AddPeerCopies(registrar);
  return absl::OkStatus();
}

}  // namespace rankwise::micro

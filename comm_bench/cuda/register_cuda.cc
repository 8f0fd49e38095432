#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "comm_bench/cuda/copies.h"
#include "comm_bench/cuda/gpu_context.h"
#include "comm_bench/cuda/launches.h"
#include "comm_bench/cuda/limit.h"
#include "comm_bench/cuda/peer_copy_measurement.h"
#include "comm_bench/cuda/register.h"
#include "comm_bench/cuda/run_measurement.h"
#include "comm_bench/cuda/sums.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

using Make = std::function<absl::StatusOr<std::unique_ptr<Measurement>>()>;

class Registrar {
 public:
  explicit Registrar(bool* failed) : failed_(failed) {}

  // The benchmark's number of iterations is fixed, so that it is set up once.
  void Add(const std::string& name, Make make, Traffic traffic,
           int64_t iterations) {
    const auto run = [failed = failed_, make = std::move(make),
                      traffic = std::move(traffic)](benchmark::State& state) {
      const absl::StatusOr<std::unique_ptr<Measurement>> measurement = make();
      if (!measurement.ok()) {
        state.SkipWithError(
            std::string(measurement.status().message()).c_str());
      }
      if (!measurement.ok() || !RunMeasurement(state, **measurement, traffic))
        *failed = true;
    };
    benchmark::RegisterBenchmark(name.c_str(), run)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(iterations);
  }

  // As `name`/bytes of a buffer; some 8 GiB in all.
  void AddTransfer(const std::string& name, int64_t bytes, Make make,
                   Traffic traffic) {
    constexpr int64_t kInAll = 8192 * kMiB;
    Add(absl::StrCat(name, "/", bytes), std::move(make), std::move(traffic),
        std::clamp<int64_t>(kInAll / bytes, 10, 500));
  }

 private:
  bool* failed_;
};

void AddHostCopies(Registrar& registrar) {
  const Limit limit = HostLinkLimitOfGpu(0);
  for (const auto& [name, way] :
       {std::pair("HostToGpu/pinned", HostCopy::kToGpuPinned),
        std::pair("HostToGpu/pageable", HostCopy::kToGpuPageable),
        std::pair("GpuToHost/pinned", HostCopy::kToHostPinned),
        std::pair("GpuToHost/pageable", HostCopy::kToHostPageable)}) {
    for (const int64_t bytes : {kMiB, 16 * kMiB, 256 * kMiB}) {
      registrar.AddTransfer(
          name, bytes, [way = way, bytes] { return MakeHostCopy(way, bytes); },
          {bytes, limit});
    }
  }
}

// Of the memory's bound; the last is far larger than any cache.
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

absl::StatusOr<std::unique_ptr<Measurement>> MakePeers(int from, int to,
                                                       int64_t bytes) {
  auto copy = MakePeerCopy(from, to, bytes);
  if (!copy.ok()) return copy.status();
  return *std::move(copy);
}

void AddPeerCopies(Registrar& registrar) {
  const Limit limit{
      .what = "limit unknown: the links between GPUs do not tell theirs"};
  for (int from = 0; from < VisibleGpus(); ++from) {
    for (int to = 0; to < VisibleGpus(); ++to) {
      if (from == to) continue;
      for (const int64_t bytes : {16 * kMiB, 256 * kMiB}) {
        registrar.AddTransfer(
            absl::StrCat("PeerCopy/", from, "/", to), bytes,
            [from, to, bytes] { return MakePeers(from, to, bytes); },
            {bytes, limit});
      }
    }
  }
}

}  // namespace

absl::Status RegisterMeasurements(bool* failed) {
  const absl::StatusOr<GpuFacts> gpu = DescribeGpu(0);
  if (!gpu.ok()) return gpu.status();
  for (const auto& [key, value] : GpuContext(*gpu))
    benchmark::AddCustomContext(key, value);
  Registrar registrar(failed);
  AddHostCopies(registrar);
  AddGpuCopies(registrar, *gpu);
  AddSums(registrar, *gpu);
  AddLaunches(registrar);
  AddPeerCopies(registrar);
  return absl::OkStatus();
}

}  // namespace rankwise::micro

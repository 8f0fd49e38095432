#include "comm_bench/sweep/measure_on.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/counted.h"
#include "comm_bench/sweep/sizes.h"
#include "parallel/device/device_facts.h"

namespace rankwise::comm_bench {
namespace {

// The flag that asks for what a CPU has not, and why; empty: none.
std::pair<std::string, std::string> NeedsGpu(const BenchConfig& config) {
  if (config.layer == "nccl") return {"--layer=nccl", "NCCL runs on GPUs only"};
  if (config.timing == "events") {
    return {"--timing=events", "a CPU has no events"};
  }
  if (config.measure.graph) return {"--cuda_graph", "a CPU has no graphs"};
  if (config.measure.registered) {
    return {"--registered", "only NCCL registers buffers"};
  }
  return {};
}

bool NeedsCommonClock(const BenchConfig& config) {
  const Across across = config.measure.timing.across;
  return across == Across::kTransfer || across == Across::kMakespan;
}

bool ByEvents(c10::Device device, const BenchConfig& config) {
  if (config.timing != "auto") return config.timing == "events";
  return device.is_cuda() && config.mode == "sweep" &&
         !NeedsCommonClock(config);
}

bool HasBuffers(const BenchConfig& config) {
  if (config.mode == "ladder") return true;
  if (config.mode == "pairs") return config.sizes_given;
  return (config.mode == "sweep" || config.mode == "overlap") &&
         std::any_of(config.collectives.begin(), config.collectives.end(),
                     [](const Collective* item) { return item->has_elements; });
}

}  // namespace

absl::StatusOr<MeasureConfig> MeasureOn(c10::Device device,
                                        const BenchConfig& config) {
  const auto [flag, why] = NeedsGpu(config);
  if (!device.is_cuda() && !flag.empty()) {
    const std::string missing = WhyNoGpu();
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", why, ", and this runs on ", device.str(),
                     missing.empty() ? "" : absl::StrCat(" (", missing, ")"),
                     "; leave it out, or run on GPUs"));
  }
  if (config.timing == "events" && NeedsCommonClock(config)) {
    return absl::InvalidArgumentError(
        "--timing=events: events say how long a rank's call took, not when it "
        "ended on the ranks' common clock, as --across=transfer and makespan "
        "need; use --timing=host or --across=slowest");
  }
  MeasureConfig measure = config.measure;
  measure.events = ByEvents(device, config);
  measure.choices = config.nccl_choices && device.is_cuda();
  return measure;
}

absl::Status CheckMemory(const BenchConfig& config, int ranks,
                         int64_t memory_bytes) {
  if (!HasBuffers(config) || memory_bytes <= 0) return absl::OkStatus();
  constexpr int64_t kMebi = 1 << 20;
  const int64_t largest =
      *std::max_element(config.sizes.begin(), config.sizes.end());
  const int64_t limit = memory_bytes / ranks / config.measure.in_flight;
  if (largest <= limit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      config.sizes_given ? "--sizes: " : "--max_bytes: ", FormatBytes(largest),
      " is above the limit of ",
      FormatBytes(limit < kMebi ? limit : limit / kMebi * kMebi),
      ": the buffers of ", Counted(ranks, "rank"),
      config.measure.in_flight > 1
          ? absl::StrCat(" with --in_flight=", config.measure.in_flight)
          : "",
      " must fit into this machine's memory"));
}

}  // namespace rankwise::comm_bench

#include "comm_bench/measure_on.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

}  // namespace rankwise::comm_bench

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/launch/comm_flags.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/split_flags.h"
#include "trainers/stage_flags.h"
#include "trainers/zero_flags.h"

TRAINER_FLAG(kLayout, int, tp, 1,
             "ranks that divide every layer's weights (tensor parallelism)");
TRAINER_FLAG(kLayout, int, cp, 1,
             "ranks that divide every sequence (context parallelism)");
TRAINER_FLAG(kSpeed, std::string, context, "ring",
             "how attention sees the tokens of other ranks along cp: ring "
             "(keys and values go round) or ulysses (an all-to-all gives every "
             "rank all tokens of some heads)");
TRAINER_FLAG(kLayout, std::string, mesh_order, "pp,dp,cp,tp",
             "the axes of the mesh; ranks that differ in the last one are "
             "neighbours, and so in one node where they can be");

ABSL_DECLARE_FLAG(int, pp);

namespace rankwise {
namespace {

constexpr int kMostRanks = 1 << 20;

absl::Status CheckAxes(const PipelineConfig& config) {
  FlagChecks checks;
  checks.InRange("pp", config.ranks, 1, kMostRanks);
  checks.InRange("cp", config.context, 1, kMostRanks);
  checks.InRange("tp", config.tensor, 1, kMostRanks);
  const std::string context = absl::GetFlag(FLAGS_context);
  checks.OneOf("context", context, {"ring", "ulysses"});
  if (config.context == 1 && context != "ring") {
    checks.Complain(
        absl::StrCat("--context=", context, ": needs --cp above 1"));
  }
  std::vector<std::string> axes = config.mesh_order;
  absl::c_sort(axes);
  if (axes != std::vector<std::string>{"cp", "dp", "pp", "tp"}) {
    checks.Complain(
        absl::StrCat("--mesh_order=", absl::GetFlag(FLAGS_mesh_order),
                     ": must name pp, dp, cp and tp once each, as in "
                     "pp,dp,cp,tp; the last one's ranks are neighbours"));
  }
  return checks.status();
}

// With --nproc, whether copies of the model fill the ranks.
absl::Status CheckRanks(const PipelineConfig& config) {
  const int ranks = absl::GetFlag(FLAGS_nproc);
  const int64_t copy = int64_t{config.ranks} * config.context * config.tensor;
  if (InsideLauncher() || ranks % copy == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--pp=", config.ranks, " --cp=", config.context, " --tp=", config.tensor,
      ": ", copy, " ranks hold one copy of the model, and --nproc=", ranks,
      " is not a multiple of it; give --nproc=", copy,
      ", or sizes whose product is ", DivisorsOf(ranks)));
}

}  // namespace

ModelSplit HybridSplitFromFlags() {
  ModelSplit split = TensorSplitFromFlags(absl::GetFlag(FLAGS_tp));
  split.context = absl::GetFlag(FLAGS_cp);
  split.method = absl::GetFlag(FLAGS_context) == "ulysses"
                     ? ContextMethod::kUlysses
                     : ContextMethod::kRing;
  return split;
}

PipelineConfig HybridConfigFromFlags() {
  PipelineConfig config = PipelineConfigFromFlags();
  if (config.ranks == 0) config.ranks = 1;
  config.context = absl::GetFlag(FLAGS_cp);
  config.tensor = absl::GetFlag(FLAGS_tp);
  config.mesh_order = absl::StrSplit(absl::GetFlag(FLAGS_mesh_order), ',');
  config.zero = ZeroConfigFromFlags();
  return config;
}

absl::Status CheckHybridFlags() {
  const PipelineConfig config = HybridConfigFromFlags();
  RETURN_IF_ERROR(CheckAxes(config));
  RETURN_IF_ERROR(CheckRanks(config));
  if (DevicesGiven()) {
    return BadDevices(
        "runs a pipeline in one process, which the trainer pipeline does");
  }
  RETURN_IF_ERROR(CheckSplitOfModel(HybridSplitFromFlags()));
  RETURN_IF_ERROR(CheckZeroFlags());
  return CheckPipeline(config);
}

}  // namespace rankwise

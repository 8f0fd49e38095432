#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/plan/recorded_machine.h"
#include "analysis/runs/run_trace.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::plan {
namespace {

// A schedule lists all micro-batches, so a record must not claim an arbitrary
// number.
constexpr double kMostMicroBatches = 1 << 16;

// The planner has no layouts for the other trainers.
absl::Status CheckBinary(const RunRecord& run) {
  for (const char* planned :
       {"single", "ddp", "fsdp", "hybrid", "pipeline", "tensor_parallel"}) {
    if (run.binary == planned) return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(run.binary, " is not planned"));
}

// Flag values assumed by the planner's layouts; "" if the trainer lacks the
// flag.
absl::Status CheckFlags(const RunRecord& run) {
  constexpr std::pair<const char*, const char*> planned[] = {
      {"context", "ring"},
      {"split", "flops"},
      {"prefetch", "1"},
      {"units", "block"},
      {"tp_overlap", "1"},
      {"dropout", "0"},
      {"shard_ranks", "0"},
      {"optimizer", ""},
      {"mesh_order", "pp,dp,cp,tp"},
      {"param_dtype", ""},
      {"last_bucket_mb", "0"},
      {"comm_hook", "none"},
      {"all_reduce", "flat"},
      {"offload_optimizer", "false"},
      {"reduce_every_microbatch", "false"},
      {"local_steps", "1"}};
  for (const auto& [name, value] : planned) {
    const std::string recorded = FlagOf(run, name);
    if (recorded.empty() || recorded == value) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--", name, "=", recorded, " is not planned"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Model> ModelOf(const RunRecord& run) {
  if (FlagOf(run, "model") != "gpt") {
    return absl::FailedPreconditionError(absl::StrCat(
        "--model=", FlagOf(run, "model"), " is not planned: gpt is"));
  }
  const std::string size = FlagOf(run, "model_size");
  ASSIGN_OR_RETURN(Model model, NamedModel(size.empty() ? "nano" : size));
  const auto take = [&](const char* flag, int64_t& number) {
    const double value = NumberFlagOf(run, flag, 0);
    if (value > 0) number = std::llround(value);
  };
  take("depth", model.blocks);
  take("width", model.width);
  take("sequence_length", model.sequence);
  model.tied_head = FlagOf(run, "tied_head") != "false";
  RETURN_IF_ERROR(CheckModel(model));
  const double recorded = run.forward_flops_per_example;
  if (recorded == 0 || std::abs(model.ForwardFlops() / recorded - 1) < 0.01)
    return model;
  return absl::FailedPreconditionError(absl::StrCat(
      "its model has ", recorded, " operations per example, the planner's ",
      model.ForwardFlops()));
}

bool RanOnCpu(const RunRecord& run) {
  return !run.devices.empty() && run.devices.front() == "cpu";
}

absl::StatusOr<Layout> LayoutOf(const RunRecord& run, int64_t global_batch) {
  RETURN_IF_ERROR(CheckBinary(run));
  RETURN_IF_ERROR(CheckFlags(run));
  Layout layout;
  layout.pp = AxisSize(run, "pp");
  layout.cp = AxisSize(run, "cp");
  layout.tp = AxisSize(run, "tp");
  layout.dp = run.world_size / (layout.pp * layout.cp * layout.tp);
  layout.zero = static_cast<int>(NumberFlagOf(run, "zero", 0));
  if (layout.pp > 1) layout.schedule = FlagOf(run, "schedule");
  const bool has_chunks = layout.interleaves() || layout.schedule == "zbv";
  layout.chunks =
      has_chunks ? std::llround(std::max(0.0, NumberFlagOf(run, "chunks", 0)))
                 : 1;
  const bool meshed = run.binary == "hybrid" || run.binary == "pipeline";
  const double micro_batches =
      NumberFlagOf(run, meshed ? "microbatches" : "accumulate", 1);
  if (!(micro_batches >= 1 && micro_batches <= kMostMicroBatches)) {
    return absl::FailedPreconditionError(
        absl::StrCat(micro_batches, " micro-batches a step are not planned"));
  }
  layout.micro_batches = std::llround(micro_batches);
  const int64_t parts = layout.dp * layout.micro_batches;
  if (parts < 1 || global_batch < parts || global_batch % parts != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(global_batch, " examples a step in ", parts, " parts"));
  }
  layout.micro_batch = global_batch / parts;
  if (FlagOf(run, "recompute") == "true") layout.recompute = Recompute::kFull;
  layout.sequence_parallel = FlagOf(run, "sequence_parallel") == "true";
  return layout;
}

}  // namespace rankwise::plan

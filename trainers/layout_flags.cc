#include "trainers/layout_flags.h"

#include <cstdint>
#include <filesystem>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/flags.h"
#include "trainers/models/model.h"

ABSL_DECLARE_FLAG(std::string, precision);

namespace rankwise {
namespace {

absl::Status CheckScheduleExists(const std::string& name) {
  std::error_code ignored;
  if (IsScheduleName(name) || std::filesystem::is_regular_file(name, ignored))
    return absl::OkStatus();
  const std::string problem =
      std::filesystem::is_directory(name, ignored)
          ? "is a folder, not a CSV file"
      : std::filesystem::exists(name, ignored)
          ? "is a device, not a CSV file"
          : absl::StrCat("neither a schedule (",
                         absl::StrJoin(ScheduleNames(), ", "),
                         ") nor a CSV file that exists");
  return Bad("--schedule=", FlagOr<std::string>("schedule", name), ": ",
             problem);
}

// Other micro-batches would free the parameters between I and W of a
// micro-batch, and between the backward passes of two stages that share a unit.
absl::Status CheckZeroFits(const PipelineConfig& config,
                           const Schedule& schedule) {
  if (config.zero.sharding.stage < 3) return absl::OkStatus();
  if (UnitMebibytes(config.zero.units).has_value() &&
      schedule.num_stages() > schedule.num_ranks()) {
    return Bad("--units=", config.zero.units,
               ": with --zero=3 and several stages per rank, a unit must not "
               "span two stages; use --units=block or layer");
  }
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kWeightGrad) continue;
      return Bad("--zero=3: --schedule=", config.schedule,
                 " divides backward in two, which both need a stage's "
                 "parameters; use --zero=2, or a schedule without W, such as "
                 "1f1b");
    }
  }
  return absl::OkStatus();
}

// Checks that there is a schedule, and layers enough for its stages.
absl::Status CheckSchedule(const ModelConfig& model,
                           const PipelineConfig& config, int ranks) {
  ASSIGN_OR_RETURN(
      Schedule schedule,
      OpenSchedule(config.schedule,
                   {.num_ranks = ranks,
                    .num_micro_batches = static_cast<int>(config.micro_batches),
                    .chunks = config.chunks}));
  RETURN_IF_ERROR(CheckZeroFits(config, schedule));
  return CheckCuts(model, schedule.num_stages());
}

absl::Status CheckDevices(const ModelConfig& model,
                          const PipelineConfig& config) {
  if (absl::GetFlag(FLAGS_nproc) > 1 || InsideLauncher()) {
    return BadDevices(
        "is a model cut within one process; leave it out where every rank is a "
        "process, or leave out --nproc and other launchers");
  }
  ASSIGN_OR_RETURN(std::vector<c10::Device> devices, DevicesFromFlags());
  const int ranks = static_cast<int>(devices.size());
  if (config.replicas > 1) {
    return BadDevices("one process runs only one pipeline; leave out --dp");
  }
  if (config.ranks != 0 && config.ranks != ranks) {
    return BadDevices(
        absl::StrCat(Counted(ranks, "device"), ranks == 1 ? " is " : " are ",
                     Counted(ranks, "rank"), ", not --pp=", config.ranks,
                     "; leave out --pp"));
  }
  absl::Status fits = CheckSchedule(model, config, ranks);
  return fits.ok() ? fits : BadDevices(std::string(fits.message()));
}

}  // namespace

PipelineConfig StagesFromFlags() {
  PipelineConfig config;
  config.schedule = FlagOr("schedule", config.schedule);
  if (!IsScheduleName(config.schedule))
    config.schedule = UserPath(config.schedule);
  config.ranks = FlagOr("pp", config.ranks);
  config.replicas = FlagOr("dp", config.replicas);
  config.context = FlagOr("cp", config.context);
  config.tensor = FlagOr("tp", config.tensor);
  config.mesh_order =
      absl::StrSplit(FlagOr<std::string>("mesh_order", "pp,dp,cp,tp"), ',');
  config.micro_batches = FlagOr("microbatches", config.micro_batches);
  config.chunks = FlagOr("chunks", config.chunks);
  config.split = FlagOr("split", config.split);
  config.zero = ZeroFromFlags();
  config.zero.recompute = false;  // the stages recompute
  config.recompute = FlagOr("recompute", false);
  return config;
}

ModelSplit SplitFromFlags(int tensor) {
  const bool ulysses = FlagOr<std::string>("context", "ring") == "ulysses";
  return {.tensor = tensor,
          .sequence = FlagOr("sequence_parallel", false),
          .context = FlagOr("cp", 1),
          .method = ulysses ? ContextMethod::kUlysses : ContextMethod::kRing,
          .overlap_pieces = FlagOr("tp_overlap", 1)};
}

ZeroConfig ZeroFromFlags() {
  ZeroConfig config;
  config.sharding.stage = FlagOr("zero", config.sharding.stage);
  config.sharding.prefetch = FlagOr("prefetch", config.sharding.prefetch);
  const std::string type = FlagOr<std::string>("param_dtype", "");
  if ((type.empty() ? absl::GetFlag(FLAGS_precision) : type) == "bf16")
    config.sharding.parameter_type = at::kBFloat16;
  config.sharding.reduce_every_micro_batch =
      FlagOr("reduce_every_microbatch", false);
  config.sharding.offload = FlagOr("offload_optimizer", false);
  config.units = FlagOr("units", config.units);
  config.shard_ranks = FlagOr("shard_ranks", config.shard_ranks);
  config.recompute = FlagOr("recompute", false);
  return config;
}

bool DevicesGiven() { return !FlagOr<std::string>("devices", "").empty(); }

absl::StatusOr<std::vector<c10::Device>> DevicesFromFlags() {
  if (!DevicesGiven()) return std::vector<c10::Device>();
  ASSIGN_OR_RETURN(std::vector<c10::Device> devices,
                   ParseStageDevices(FlagOr<std::string>("devices", "")));
  for (const c10::Device& device : devices) {
    if (device.type() != devices.front().type()) {
      return BadDevices(
          "cpu and cuda do not mix: the host would wait for every message");
    }
  }
  return devices;
}

absl::Status BadDevices(const std::string& why) {
  return Bad("--devices=", FlagOr<std::string>("devices", ""), ": ", why);
}

absl::Status CheckStages(const ModelConfig& model,
                         const PipelineConfig& config) {
  RETURN_IF_ERROR(CheckScheduleExists(config.schedule));
  if (DevicesGiven()) return CheckDevices(model, config);
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  ASSIGN_OR_RETURN(MeshLayout mesh,
                   LayOutRanks(PipelineAxes(config, ranks), ranks));
  return CheckSchedule(model, config, mesh.size("pp"));
}

absl::Status CheckMesh(const PipelineConfig& config) {
  std::vector<std::string> axes = config.mesh_order;
  absl::c_sort(axes);
  if (axes != std::vector<std::string>{"cp", "dp", "pp", "tp"}) {
    return Bad("--mesh_order=", absl::StrJoin(config.mesh_order, ","),
               ": must name pp, dp, cp and tp once each, as in pp,dp,cp,tp; "
               "the last one's ranks are neighbours");
  }
  const int ranks = absl::GetFlag(FLAGS_nproc);
  const int64_t copy = int64_t{config.ranks} * config.context * config.tensor;
  if (InsideLauncher() || ranks % copy == 0) return absl::OkStatus();
  return Bad("--pp=", config.ranks, " --cp=", config.context,
             " --tp=", config.tensor, ": ", copy,
             " ranks hold one copy of the model, and --nproc=", ranks,
             " is not a multiple of it; give --nproc=", copy,
             ", or sizes whose product is ", DivisorsOf(ranks));
}

absl::Status CheckCuts(const ModelConfig& config, int stages) {
  ASSIGN_OR_RETURN(const ModelSpec model, MakeModelSpec(config));
  // --split=time cuts at run time; only the number of layers is known here.
  const std::string split = FlagOr<std::string>("split", "flops");
  return SplitModel(model, split == "time" ? "layers" : split, stages).status();
}

absl::Status CheckSplit(ModelConfig model, const ModelSplit& split) {
  if (split.overlap_pieces > 1 && split.tensor == 1) {
    return Bad("--tp_overlap=", split.overlap_pieces,
               ": needs at least 2 ranks along tp (--tp of hybrid, --nproc of "
               "tensor_parallel)");
  }
  model.split = split;
  return MakeModelSpec(model).status();
}

absl::Status CheckSharding(const TrainConfig&) {
  const std::string units = FlagOr<std::string>("units", "block");
  if (!IsUnits(units)) {
    return Bad("--units=", units,
               ": must be block, layer, or a number of MiB above 0 and at most "
               "1048576");
  }
  const int shard_ranks = FlagOr("shard_ranks", 0);
  if (shard_ranks == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  if (ranks % shard_ranks == 0) return absl::OkStatus();
  return Bad("--shard_ranks=", shard_ranks, ": does not divide the ",
             Counted(ranks, "rank"), "; give ", DivisorsOf(ranks));
}

}  // namespace rankwise

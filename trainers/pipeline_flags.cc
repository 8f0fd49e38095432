#include <filesystem>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "parallel/comm/mesh.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flags.h"
#include "trainers/loop/sharded_model.h"
#include "trainers/stage_flags.h"

TRAINER_FLAG(
    kSpeed, std::string, schedule, "1f1b",
    absl::StrCat(
        absl::StrJoin(rankwise::ScheduleNames(), ", "),
        " (planned from the times that --split=time measured, otherwise for F "
        "= I = W, and again from the times of the first steps; "
        "zero_bubble_auto:6 keeps at most 6 micro-batches per rank, the "
        "default is the number of ranks), or a CSV file's path "
        "(docs/pipeline.md)"));
TRAINER_FLAG(kLayout, int, pp, 0,
             "ranks of one pipeline; 0: all ranks / --dp, and of hybrid 1");
TRAINER_FLAG(kLayout, int, dp, 0,
             "replicas of the model, each with its own data; 0: what the other "
             "axes of the mesh leave");
TRAINER_FLAG(kBatch, int64_t, microbatches, 8,
             "micro-batches of --batch_size examples per optimizer step and "
             "replica");
TRAINER_FLAG(
    kSpeed, int, chunks, 0,
    "stages per rank; 0: the schedule's own (2 for interleaved_1f1b, zbv and "
    "dualpipev)");

ABSL_DECLARE_FLAG(int64_t, accumulate);
ABSL_DECLARE_FLAG(int64_t, check_divergence_every);
ABSL_DECLARE_FLAG(bool, recompute);

namespace rankwise {
namespace {

constexpr int kMostRanks = 1 << 20, kMostChunks = 1 << 20;
constexpr int64_t kMostMicroBatches = 1 << 20;

absl::Status CheckNumbers(const PipelineConfig& config) {
  FlagChecks checks;
  checks.InRange("pp", config.ranks, 0, kMostRanks);
  checks.InRange("dp", config.replicas, 0, kMostRanks);
  checks.InRange("chunks", config.chunks, 0, kMostChunks);
  checks.InRange<int64_t>("microbatches", config.micro_batches, 1,
                          kMostMicroBatches);
  const int64_t accumulate = absl::GetFlag(FLAGS_accumulate);
  if (accumulate != 1) {
    checks.Complain(
        absl::StrCat("--accumulate=", accumulate,
                     ": a pipeline accumulates over its --microbatches"));
  }
  if (absl::GetFlag(FLAGS_check_divergence_every) != 0) {
    checks.Complain("--check_divergence_every: only ddp compares its replicas");
  }
  return checks.status();
}

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
  return absl::InvalidArgumentError(absl::StrCat(
      "--schedule=", absl::GetFlag(FLAGS_schedule), ": ", problem));
}

absl::Status CheckBasics(const PipelineConfig& config) {
  RETURN_IF_ERROR(CheckNumbers(config));
  RETURN_IF_ERROR(CheckBackendOfStages());
  return CheckScheduleExists(config.schedule);
}

// Other micro-batches would free the parameters between I and W of a
// micro-batch, and between the backward passes of two stages that share a unit.
absl::Status CheckZeroFits(const PipelineConfig& config,
                           const Schedule& schedule) {
  if (config.zero.sharding.stage < 3) return absl::OkStatus();
  if (UnitMebibytes(config.zero.units).has_value() &&
      schedule.num_stages() > schedule.num_ranks()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--units=", config.zero.units,
        ": with --zero=3 and several stages per rank, a unit must not span two "
        "stages; use --units=block or layer"));
  }
  for (const auto& actions : schedule.actions) {
    for (const Action& action : actions) {
      if (action.kind != ActionKind::kWeightGrad) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--zero=3: --schedule=", absl::GetFlag(FLAGS_schedule),
          " divides backward in two, which both need a stage's parameters; use "
          "--zero=2, or a schedule without W, such as 1f1b"));
    }
  }
  return absl::OkStatus();
}

// Whether a pipeline of `ranks` has a schedule, and the model stages for it.
absl::Status CheckSchedule(const PipelineConfig& config, int ranks) {
  ASSIGN_OR_RETURN(
      Schedule schedule,
      OpenSchedule(config.schedule,
                   {.num_ranks = ranks,
                    .num_micro_batches = static_cast<int>(config.micro_batches),
                    .chunks = config.chunks}));
  RETURN_IF_ERROR(CheckZeroFits(config, schedule));
  return CheckSplitFits(schedule.num_stages());
}

absl::Status CheckDevices(const PipelineConfig& config) {
  if (absl::GetFlag(FLAGS_nproc) > 1 || InsideLauncher()) {
    return BadDevices(
        "is a pipeline in one process; leave it out where every rank is a "
        "process, or leave out --nproc and other launchers");
  }
  ASSIGN_OR_RETURN(std::vector<c10::Device> devices,
                   StageDevicesFromFlags(/*without=*/""));
  const int ranks = static_cast<int>(devices.size());
  if (config.replicas > 1) {
    return BadDevices(absl::StrCat("one process runs one pipeline, not --dp=",
                                   config.replicas));
  }
  if (config.ranks != 0 && config.ranks != ranks) {
    return BadDevices(
        absl::StrCat(Counted(ranks, "device"), ranks == 1 ? " is " : " are ",
                     Counted(ranks, "rank"), ", not --pp=", config.ranks,
                     "; leave out --pp"));
  }
  absl::Status fits = CheckSchedule(config, ranks);
  return fits.ok() ? fits : BadDevices(std::string(fits.message()));
}

}  // namespace

absl::Status CheckPipelineFlags() {
  const PipelineConfig config = PipelineConfigFromFlags();
  if (!DevicesGiven()) return CheckPipeline(config);
  RETURN_IF_ERROR(CheckBasics(config));
  return CheckDevices(config);
}

absl::Status CheckPipeline(const PipelineConfig& config) {
  RETURN_IF_ERROR(CheckBasics(config));
  // What the ranks would find out one by one.
  ASSIGN_OR_RETURN(const int ranks, WorldSizeFromFlags());
  ASSIGN_OR_RETURN(MeshLayout mesh,
                   LayOutRanks(PipelineAxes(config, ranks), ranks));
  return CheckSchedule(config, mesh.size("pp"));
}

PipelineConfig PipelineConfigFromFlags() {
  PipelineConfig config{.schedule = absl::GetFlag(FLAGS_schedule),
                        .ranks = absl::GetFlag(FLAGS_pp),
                        .replicas = absl::GetFlag(FLAGS_dp),
                        .micro_batches = absl::GetFlag(FLAGS_microbatches),
                        .chunks = absl::GetFlag(FLAGS_chunks),
                        .split = SplitFromFlags(),
                        .recompute = absl::GetFlag(FLAGS_recompute)};
  if (!IsScheduleName(config.schedule))
    config.schedule = UserPath(config.schedule);
  return config;
}

}  // namespace rankwise

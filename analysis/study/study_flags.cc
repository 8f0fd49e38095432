#include "analysis/study/study_flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/study/trainer_path.h"

ABSL_FLAG(
    std::string, world_sizes, "1,2",
    "world sizes of every trainer but single; model_parallel and pipeline "
    "run at those above 1");
ABSL_FLAG(std::string, trainers, "single,ddp,model_parallel,pipeline",
          "what to run; single is the base case of the others");
ABSL_FLAG(std::string, schedules, "gpipe,1f1b,interleaved_1f1b,zero_bubble_h1",
          "of the trainer pipeline; also naive and zbv");
ABSL_FLAG(int64_t, microbatches, 4,
          "that the pipeline divides a global batch into under strong scaling; "
          "times the world size under weak");
ABSL_FLAG(std::string, scaling, "strong,weak",
          "strong: the global batch is held equal; weak: the batch per rank");
ABSL_FLAG(std::string, pipeline_scaling, "",
          "of model_parallel and pipeline instead of --scaling; empty: strong "
          "where --scaling has it, else weak");
ABSL_FLAG(int64_t, repetitions, 5, "runs of every configuration");
ABSL_FLAG(int64_t, batch_size, 64,
          "examples a step: of all ranks together under strong, of each rank "
          "under weak scaling");
ABSL_FLAG(int64_t, max_steps, 60, "steps of every run, warm-up included");
ABSL_FLAG(int64_t, warmup_steps, 10,
          "steps at the start of every run that are left out");
ABSL_FLAG(int64_t, train_size, 0,
          "training examples; 0: enough that no run needs a second epoch");
ABSL_FLAG(int64_t, threads, 0,
          "compute threads per rank, equal at all world sizes; 0: cores / the "
          "largest world size, at least 1");
ABSL_FLAG(bool, oversubscribe, false,
          "allow more ranks times threads than this machine has cores");
ABSL_FLAG(uint64_t, seed, 0, "of the trainers, and of the order of the runs");
ABSL_FLAG(std::string, model, "", "as the trainers take it; empty: theirs");
ABSL_FLAG(std::string, dataset, "",
          "synthetic or cifar10; empty: synthetic, which needs no files");
ABSL_FLAG(std::string, data_dir, "", "folder of the dataset's files");
ABSL_FLAG(std::string, device, "", "as the trainers take it; empty: auto");
ABSL_FLAG(std::string, backend, "", "as the trainers take it; empty: auto");
ABSL_FLAG(std::string, precision, "", "fp32 or bf16; empty: fp32");
ABSL_FLAG(std::string, trainer_flags, "",
          "more flags for every trainer, with spaces between: '--lr=0.01'");
ABSL_FLAG(std::string, output_dir, "",
          "folder for the records; empty: results/TIME");
ABSL_FLAG(std::string, from, "",
          "run nothing: print the table of the records in this folder");
ABSL_FLAG(absl::Duration, run_timeout, absl::Minutes(10),
          "end a run that takes longer");
ABSL_FLAG(bool, dry_run, false, "print the commands of all runs, run nothing");
ABSL_FLAG(std::string, trainer_dir, "",
          "folder of the trainers' binaries; empty: this build's");

namespace rankwise {
namespace {

// The flags that are handed on as they are, where they are set.
std::vector<std::string> TrainerFlags() {
  std::vector<std::string> flags = absl::StrSplit(
      absl::GetFlag(FLAGS_trainer_flags), ' ', absl::SkipEmpty());
  const auto hand_on = [&flags](absl::string_view name,
                                const std::string& value) {
    if (!value.empty()) flags.push_back(absl::StrCat("--", name, "=", value));
  };
  hand_on("model", absl::GetFlag(FLAGS_model));
  hand_on("dataset", absl::GetFlag(FLAGS_dataset));
  hand_on("device", absl::GetFlag(FLAGS_device));
  hand_on("backend", absl::GetFlag(FLAGS_backend));
  hand_on("precision", absl::GetFlag(FLAGS_precision));
  const std::string data_dir = absl::GetFlag(FLAGS_data_dir);
  if (!data_dir.empty()) hand_on("data_dir", UserPath(data_dir));
  return flags;
}

// The trainers' default, or what the last of `flags` says.
std::string ModelOf(const std::vector<std::string>& flags) {
  std::string model = "simple_cnn";
  for (absl::string_view flag : flags) {
    if (absl::ConsumePrefix(&flag, "--model=")) model = std::string(flag);
  }
  return model;
}

absl::StatusOr<std::vector<Scaling>> PipelineScalings(
    const std::vector<Scaling>& scalings) {
  const std::string text = absl::GetFlag(FLAGS_pipeline_scaling);
  if (!text.empty()) return ParseScalings("pipeline_scaling", text);
  const bool strong =
      std::count(scalings.begin(), scalings.end(), Scaling::kStrong) > 0;
  return std::vector<Scaling>{strong ? Scaling::kStrong : Scaling::kWeak};
}

}  // namespace

std::string UserPath(const std::string& path) {
  const char* typed_in = std::getenv("BUILD_WORKING_DIRECTORY");
  const std::filesystem::path base = typed_in != nullptr
                                         ? std::filesystem::path(typed_in)
                                         : std::filesystem::current_path();
  return (base / path).lexically_normal().string();
}

absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host) {
  StudyConfig config;
  const auto trainers = ParseTrainers(absl::GetFlag(FLAGS_trainers));
  if (!trainers.ok()) return trainers.status();
  const auto world_sizes = ParseWorldSizes(absl::GetFlag(FLAGS_world_sizes));
  if (!world_sizes.ok()) return world_sizes.status();
  const auto scalings = ParseScalings("scaling", absl::GetFlag(FLAGS_scaling));
  if (!scalings.ok()) return scalings.status();
  const auto pipeline_scalings = PipelineScalings(*scalings);
  if (!pipeline_scalings.ok()) return pipeline_scalings.status();
  const auto schedules = ParseSchedules(absl::GetFlag(FLAGS_schedules));
  if (!schedules.ok()) return schedules.status();
  config.trainers = *trainers;
  config.world_sizes = *world_sizes;
  config.scalings = *scalings;
  config.pipeline_scalings = *pipeline_scalings;
  config.schedules = *schedules;
  config.micro_batches = absl::GetFlag(FLAGS_microbatches);
  config.repetitions = absl::GetFlag(FLAGS_repetitions);
  config.batch_size = absl::GetFlag(FLAGS_batch_size);
  config.max_steps = absl::GetFlag(FLAGS_max_steps);
  config.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  config.train_size = absl::GetFlag(FLAGS_train_size);
  config.threads = absl::GetFlag(FLAGS_threads);
  config.cores = host.cores;
  config.oversubscribe = absl::GetFlag(FLAGS_oversubscribe);
  config.seed = absl::GetFlag(FLAGS_seed);
  config.trainer_flags = TrainerFlags();
  config.model = ModelOf(config.trainer_flags);
  config.model_layers = LayersOfModel(config.model);
  if (absl::Status status = CheckStudyConfig(config); !status.ok()) {
    return status;
  }
  return config;
}

absl::StatusOr<StudyRunnerConfig> RunnerFromFlags(const StudyConfig& study) {
  StudyRunnerConfig runner;
  runner.run_timeout = absl::GetFlag(FLAGS_run_timeout);
  if (runner.run_timeout <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        "--run_timeout: expected a time above 0, such as 10m");
  }
  runner.on_terminal = isatty(STDOUT_FILENO) == 1;
  const std::string trainer_dir = absl::GetFlag(FLAGS_trainer_dir);
  if (!trainer_dir.empty()) {
    runner.trainer_dir = UserPath(trainer_dir);
  } else {
    absl::StatusOr<std::string> found = FindTrainerDir(
        std::filesystem::read_symlink("/proc/self/exe").string());
    if (!found.ok()) return found.status();
    runner.trainer_dir = *std::move(found);
  }
  for (const std::string& trainer : study.trainers) {
    const auto path = TrainerPath(runner.trainer_dir, trainer);
    if (!path.ok()) return path.status();
  }
  std::string output_dir = absl::GetFlag(FLAGS_output_dir);
  if (output_dir.empty()) {
    output_dir = absl::FormatTime("results/%Y%m%d-%H%M%S", absl::Now(),
                                  absl::LocalTimeZone());
  }
  runner.output_dir = UserPath(output_dir);
  return runner;
}

}  // namespace rankwise

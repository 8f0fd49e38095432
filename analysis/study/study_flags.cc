#include "analysis/study/study_flags.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/study/programs.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/record.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

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
          "strong: the global batch is held equal; weak: the batch per rank; "
          "fixed_memory: every cell gets the largest batch whose peak memory "
          "stays under --memory_limit, found by short runs");
ABSL_FLAG(std::string, memory_limit, "",
          "of a rank under --scaling=fixed_memory: 4GB, 512MiB; of its "
          "accelerator where it has one, else of its process");
ABSL_FLAG(
    std::string, pipeline_scaling, "",
    "of model_parallel and pipeline instead of --scaling; empty: the same "
    "without weak, if anything else is left");
ABSL_FLAG(int64_t, repetitions, 5, "runs of every configuration");
ABSL_FLAG(int64_t, ablations, 3,
          "runs of every configuration that only tells the causes of a loss "
          "apart: cells without communication, and the base case with their "
          "smaller batches; 0: none");
ABSL_FLAG(std::string, ablation_schedules, "1f1b",
          "for which of --schedules; empty: none");
ABSL_FLAG(bool, comm_bench, true,
          "also measure communication at every world size above 1, 15 s each");
ABSL_FLAG(int64_t, traffic_steps, 5,
          "steps whose communication ddp records, for predictions; 0: none");
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
ABSL_FLAG(std::string, precision, "",
          "fp32, bf16 or, on a GPU, fp16; empty: fp32");
ABSL_FLAG(std::string, trainer_flags, "",
          "more flags for every trainer, with spaces between: '--lr=0.01'");
ABSL_FLAG(std::string, output_dir, "",
          "folder for the records; empty: results/TIME");
ABSL_FLAG(bool, resume, false,
          "go on with the study in --output_dir: only runs that are missing");
ABSL_FLAG(std::string, from, "",
          "run nothing: read the records in this folder once more");
ABSL_FLAG(bool, report, true, "write report.html into the folder");
ABSL_FLAG(std::string, plotly_js, "",
          "plotly.min.js, which the report holds; empty: this build's");
ABSL_FLAG(bool, force, false,
          "compare what would be refused, with a mark; under --resume, go on "
          "with another version of the code or on another machine");
ABSL_FLAG(absl::Duration, run_timeout, absl::Minutes(10),
          "end a run that takes longer");
ABSL_FLAG(bool, dry_run, false,
          "run nothing: list what would run, and about how long");
ABSL_FLAG(bool, verbose, false, "with --dry_run: the commands too");
ABSL_FLAG(std::string, trainer_dir, "",
          "folder of the trainers' binaries; empty: this build's");

namespace rankwise {
namespace {

// Flags that only say what is done with a study, or where: all others of this
// file describe it.
constexpr absl::string_view kNotDescribing[] = {
    "dry_run", "force",  "from",        "output_dir",  "plotly_js",
    "report",  "resume", "run_timeout", "trainer_dir", "verbose"};

bool Describes(const absl::CommandLineFlag& flag) {
  return absl::EndsWith(flag.Filename(), "study/study_flags.cc") &&
         std::find(std::begin(kNotDescribing), std::end(kNotDescribing),
                   flag.Name()) == std::end(kNotDescribing);
}

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
    std::vector<Scaling> scalings) {
  const std::string text = absl::GetFlag(FLAGS_pipeline_scaling);
  if (!text.empty()) return ParseScalings("pipeline_scaling", text);
  if (scalings.size() > 1) {
    scalings.erase(
        std::remove(scalings.begin(), scalings.end(), Scaling::kWeak),
        scalings.end());
  }
  return scalings;
}

// Fills the flags that are lists of names or sizes.
absl::Status SetLists(StudyConfig* config) {
  ASSIGN_OR_RETURN(config->trainers,
                   ParseTrainers(absl::GetFlag(FLAGS_trainers)));
  ASSIGN_OR_RETURN(config->world_sizes,
                   ParseWorldSizes(absl::GetFlag(FLAGS_world_sizes)));
  ASSIGN_OR_RETURN(config->scalings,
                   ParseScalings("scaling", absl::GetFlag(FLAGS_scaling)));
  ASSIGN_OR_RETURN(config->pipeline_scalings,
                   PipelineScalings(config->scalings));
  ASSIGN_OR_RETURN(config->schedules,
                   ParseSchedules("schedules", absl::GetFlag(FLAGS_schedules)));
  const std::string ablated = absl::GetFlag(FLAGS_ablation_schedules);
  config->ablation_schedules.clear();
  if (!ablated.empty()) {
    ASSIGN_OR_RETURN(config->ablation_schedules,
                     ParseSchedules("ablation_schedules", ablated));
  }
  const std::string limit = absl::GetFlag(FLAGS_memory_limit);
  if (!limit.empty()) {
    ASSIGN_OR_RETURN(config->memory_limit_bytes,
                     ParseMemory("memory_limit", limit));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<StudyDescription>> ReadFolder() {
  const std::string from = absl::GetFlag(FLAGS_from);
  const bool resume = absl::GetFlag(FLAGS_resume);
  std::string dir = resume ? absl::GetFlag(FLAGS_output_dir) : from;
  if (resume && !from.empty()) {
    return absl::InvalidArgumentError(
        "--from runs nothing, and --resume does: pass one of the two");
  }
  if (resume && dir.empty()) {
    return absl::InvalidArgumentError(
        "--resume: pass --output_dir too, the folder of the study to go on "
        "with");
  }
  if (dir.empty()) return std::nullopt;
  dir = UserPath(dir);
  std::error_code error;
  if (std::filesystem::exists(StudyFilePath(dir), error)) {
    return ReadFlagfile(StudyFilePath(dir));
  }
  if (!resume) return std::nullopt;  // of a version that wrote none
  return absl::NotFoundError(absl::StrCat(
      "--resume: ", dir,
      " holds no study.flags: no study was begun there, or an earlier version "
      "did; choose another folder, or read it by --from"));
}

std::string OwnPath() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

absl::Status FindBinaries(const StudyConfig& study,
                          const std::string& trainer_dir) {
  for (const std::string& trainer : study.trainers) {
    RETURN_IF_ERROR(TrainerPath(trainer_dir, trainer).status());
  }
  const bool only_single = study.trainers == std::vector<std::string>{"single"};
  if (!study.comm_bench || only_single || LargestWorldSize(study) == 1) {
    return absl::OkStatus();
  }
  return CommBenchPath(trainer_dir).status();
}

}  // namespace

absl::StatusOr<CommandLine> ParseStudyCommandLine(int argc, char** argv) {
  CommandLine line;
  line.positional = ParseFlags(argc, argv);
  ASSIGN_OR_RETURN(line.folder, ReadFolder());
  if (!line.folder.has_value()) return line;
  for (const auto& [name, value] : line.folder->flags) {
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(name);
    std::string error = "there is no such flag";
    if (flag != nullptr && flag->ParseFrom(value, &error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("study.flags: --", name, "=", value, ": ", error));
  }
  ParseFlags(argc, argv);  // once more: it wins
  return line;
}

absl::StatusOr<StudyConfig> ConfigFromFlags(const HostInfo& host) {
  StudyConfig config;
  RETURN_IF_ERROR(SetLists(&config));
  config.micro_batches = absl::GetFlag(FLAGS_microbatches);
  config.repetitions = absl::GetFlag(FLAGS_repetitions);
  config.ablations = absl::GetFlag(FLAGS_ablations);
  config.comm_bench = absl::GetFlag(FLAGS_comm_bench);
  config.traffic_steps = absl::GetFlag(FLAGS_traffic_steps);
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
  RETURN_IF_ERROR(CheckStudyConfig(config));
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
    ASSIGN_OR_RETURN(runner.trainer_dir, FindTrainerDir(OwnPath()));
  }
  RETURN_IF_ERROR(FindBinaries(study, runner.trainer_dir));
  std::string output_dir = absl::GetFlag(FLAGS_output_dir);
  if (output_dir.empty()) {
    output_dir = absl::FormatTime("results/%Y%m%d-%H%M%S", absl::Now(),
                                  absl::LocalTimeZone());
  }
  runner.output_dir = UserPath(output_dir);
  return runner;
}

absl::StatusOr<std::string> PlotlyFromFlags() {
  const std::string plotly = absl::GetFlag(FLAGS_plotly_js);
  return plotly.empty() ? FindPlotly(OwnPath()) : UserPath(plotly);
}

StudyDescription DescribeStudy(const StudyConfig& study, const HostInfo& host) {
  StudyDescription description;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (Describes(*flag)) {
      description.flags[std::string(name)] = flag->CurrentValue();
    }
  }
  std::string& data_dir = description.flags["data_dir"];
  if (!data_dir.empty()) data_dir = UserPath(data_dir);
  description.origin = {
      {"schema_version", RunRecord().schema_version},
      {"source_hash", ThisBuildStamp().source_hash},
      {"cpu_model", host.cpu_model},
      {"cores", absl::StrCat(host.cores)},
      {"threads_per_rank", absl::StrCat(ThreadsPerRank(study))}};
  return description;
}

}  // namespace rankwise

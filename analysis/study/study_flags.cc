#include "analysis/study/study_flags.h"

#include <initializer_list>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/record.h"
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
          "runs of every configuration that only separates the causes of a "
          "loss: cells without communication, and the base case with their "
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

namespace rankwise {
namespace {

// The flags that are handed on as they are, where they are set.
std::vector<std::string> TrainerFlags() {
  std::vector<std::string> flags = absl::StrSplit(
      absl::GetFlag(FLAGS_trainer_flags), ' ', absl::SkipEmpty());
  for (const auto& [name, value] :
       std::initializer_list<std::pair<absl::string_view, std::string>>{
           {"model", absl::GetFlag(FLAGS_model)},
           {"dataset", absl::GetFlag(FLAGS_dataset)},
           {"device", absl::GetFlag(FLAGS_device)},
           {"backend", absl::GetFlag(FLAGS_backend)},
           {"precision", absl::GetFlag(FLAGS_precision)},
           {"data_dir", UserPath(absl::GetFlag(FLAGS_data_dir))}}) {
    if (!value.empty()) flags.push_back(absl::StrCat("--", name, "=", value));
  }
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
  if (scalings.size() > 1) std::erase(scalings, Scaling::kWeak);
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

}  // namespace

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
  RETURN_IF_ERROR(CheckStudyConfig(config));
  return config;
}

StudyDescription DescribeStudy(const StudyConfig& study, const HostInfo& host) {
  StudyDescription description;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "study/study_flags.cc")) {
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

#include "analysis/study/study_config.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/bad_flag.h"
#include "analysis/text/program.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "records/command_line.h"
#include "records/record.h"
#include "records/run_origin.h"
#include "records/text.h"
#include "samplers/datasets/file_datasets.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, world_sizes, "",
          "world sizes of every trainer but single; those that divide the "
          "model run only at sizes above 1; if empty, 1,2; with several hosts, "
          "powers of two within one host, then whole hosts");
ABSL_FLAG(std::string, hosts, "",
          "comma-separated hosts on which mpirun starts the runs; in a Slurm "
          "allocation of several nodes srun is used, on all nodes if empty");
ABSL_FLAG(int64_t, ranks_per_host, 0,
          "ranks on each host of --hosts or of the Slurm allocation (if 0, "
          "Slurm's tasks per node)");
ABSL_FLAG(
    std::string, trainers, "single,ddp,model_parallel,pipeline",
    "trainers to run; single is the base case of the others; also "
    "data_parallel, whose replicas count as ranks, fsdp, "
    "tensor_parallel and hybrid, the last two of --model=gpt, llama, vit, "
    "mlp or mp_mlp");
ABSL_FLAG(std::string, zero_stages, "3",
          "ZeRO stages of the trainer fsdp: 1, 2, 3, comma-separated");
ABSL_FLAG(
    std::string, layouts, "",
    "instead of --trainers: layouts of ranks to compare, each run by the "
    "trainer that supports it, next to single: ddp, zero1, zero2 and zero3 "
    "at every world size; pp2, tp2, dp2xtp2, pp2xtp2 and the like at the "
    "one that they have; or auto: ddp, zero2, zero3 and every mesh with "
    "at most two axes that the model and the batch allow; if empty, "
    "--trainers, hybrid with 2 ranks along tp, 2 along pp, the rest along "
    "dp");
ABSL_FLAG(std::string, schedules, "gpipe,1f1b,interleaved_1f1b,zero_bubble_h1",
          "schedules of pipeline and hybrid; also naive, zero_bubble_h2, "
          "zero_bubble_auto, zbv and dualpipev");
ABSL_FLAG(int64_t, microbatches, 4,
          "micro-batches of a pipeline's global batch under strong scaling; "
          "times the world size under weak");
ABSL_FLAG(std::string, scaling, "strong,weak",
          "strong: constant global batch; weak: constant batch per rank; "
          "fixed_memory: every cell gets the largest batch whose peak memory "
          "stays under --memory_limit, found by short runs");
ABSL_FLAG(std::string, memory_limit, "",
          "memory limit of a rank under --scaling=fixed_memory: 4GB, 512MiB; "
          "of its accelerator if it has one, else of its process");
ABSL_FLAG(std::string, pipeline_scaling, "",
          "scaling of trainers that divide the model (all but single, ddp, "
          "data_parallel and fsdp) instead of --scaling; if empty, --scaling "
          "without weak if anything else is left, and all of it for --layouts");
ABSL_FLAG(int64_t, repetitions, 5, "runs of every configuration");
ABSL_FLAG(
    int64_t, ablations, 3,
    "runs of configurations that only separate causes of lost "
    "efficiency: cells without communication, and the base case with their "
    "smaller batches; if 0, none");
ABSL_FLAG(std::string, ablation_schedules, "1f1b",
          "those of --schedules for which --ablations are run; if empty, none");
ABSL_FLAG(bool, comm_bench, true,
          "also measure communication at every world size above 1, 15 s each");
ABSL_FLAG(
    int64_t, traffic_steps, 5,
    "steps whose communication ddp, fsdp, tensor_parallel and hybrid record, "
    "for predictions and its table; if 0, none");
ABSL_FLAG(int64_t, batch_size, 64,
          "examples per step: of all ranks under strong, of each rank under "
          "weak scaling");
ABSL_FLAG(int64_t, max_steps, 60, "steps of every run, warm-up included");
ABSL_FLAG(int64_t, warmup_steps, 10, "steps to skip at the start of every run");
ABSL_FLAG(int64_t, train_size, 0,
          "training examples; if 0, enough that no run needs a second epoch");
ABSL_FLAG(int64_t, threads, 0,
          "compute threads per rank, equal at all world sizes; if 0, cores / "
          "largest number of ranks on a host, at least 1");
ABSL_FLAG(bool, oversubscribe, false,
          "allow more ranks times threads than available cores");
ABSL_FLAG(uint64_t, seed, 0,
          "seed of the trainers and of the order of the runs");
ABSL_FLAG(std::string, model, "",
          "the trainers' --model; if empty, their default");
ABSL_FLAG(
    std::string, dataset, "",
    "synthetic, tokens, cifar10, text, ...; if empty, the model's synthetic "
    "one, which needs no files");
ABSL_FLAG(std::string, data_dir, "", "folder of the dataset's files");
ABSL_FLAG(std::string, device, "", "the trainers' --device; if empty, auto");
ABSL_FLAG(std::string, backend, "", "the trainers' --backend; if empty, auto");
ABSL_FLAG(std::string, precision, "",
          "fp32, bf16 or, on a GPU, fp16; if empty, fp32");
ABSL_FLAG(std::string, trainer_flags, "",
          "more flags for every trainer, separated by spaces: '--lr=0.01'");

namespace rankwise {
namespace {

constexpr int64_t kMaxWorldSize = 4096;
constexpr int64_t kMostRepetitions = 1000;
constexpr int64_t kMostSteps = 1'000'000;

absl::Status CheckWorldSizes(const StudyConfig& config) {
  const int64_t threads = ThreadsPerRank(config);
  const bool divides = absl::c_any_of(config.trainers, DividesBatch) &&
                       absl::c_linear_search(config.scalings, Scaling::kStrong);
  for (int64_t world_size : config.world_sizes) {
    RETURN_IF_ERROR(CheckSize(config.hosts, world_size));
    if (divides && config.batch_size % world_size != 0) {
      return BadFlag(
          "--batch_size=", config.batch_size,
          ": strong scaling divides it among the ranks, and it does not "
          "divide by the world size ",
          world_size, ": pass another batch size or --scaling=weak");
    }
    const int64_t ranks = std::min(world_size, MostRanksOfHost(config));
    if (config.oversubscribe || ranks * threads <= config.cores) continue;
    return BadFlag(
        "--world_sizes: ", Counted(ranks, "rank"), " of ",
        Counted(threads, "thread"), " need ", ranks * threads,
        " cores, and this process may use ", config.cores,
        ": leave that size out, or pass --oversubscribe to run it all "
        "the same, marked in the table");
  }
  return absl::OkStatus();
}

// Fails for contradictory flags. Requires a config that CheckNumbers accepts.
absl::Status CheckCombinations(const StudyConfig& config) {
  if (absl::c_linear_search(config.trainers, "pipeline") &&
      config.batch_size % config.micro_batches != 0) {
    return BadFlag(
        "--batch_size=", config.batch_size,
        ": the pipeline divides it into --microbatches=", config.micro_batches,
        ", and it does not divide: pass another of the two");
  }
  if (absl::c_all_of(config.trainers, PartitionsModel) &&
      LargestWorldSize(config) == 1) {
    return BadFlag("--world_sizes=1: ", absl::StrJoin(config.trainers, " and "),
                   " cut the model over the ranks and need 2 or more");
  }
  const auto one_process = absl::c_find_if(config.trainers, IsOneProcess);
  if (one_process != config.trainers.end() && !config.hosts.launcher.empty()) {
    return BadFlag(
        "--trainers: ", *one_process,
        " is one process on one host; leave out either it or --hosts");
  }
  RETURN_IF_ERROR(CheckLayouts(config));
  const bool has_limit = config.memory_limit_bytes > 0;
  if (SearchesMemory(config) == has_limit) return absl::OkStatus();
  return has_limit
             ? BadFlag(
                   "--memory_limit: nothing depends on it but "
                   "--scaling=fixed_memory: pass both, or leave it out")
             : BadFlag(
                   "--memory_limit: --scaling=fixed_memory gives every rank "
                   "the largest batch below it: pass one, such as "
                   "--memory_limit=4GB");
}

// Integer flags and their fields.
struct CountFlag {
  const char* name;
  const absl::Flag<int64_t>* flag;
  int64_t StudyConfig::*field;
  int64_t least;
  const char* expected;
  int64_t most = 1'000'000'000;
};
constexpr CountFlag kCountFlags[] = {
    {"repetitions", &FLAGS_repetitions, &StudyConfig::repetitions, 1,
     "1 or more, and 2 or more for an interval", kMostRepetitions},
    {"batch_size", &FLAGS_batch_size, &StudyConfig::batch_size, 1, "1 or more"},
    {"microbatches", &FLAGS_microbatches, &StudyConfig::micro_batches, 1,
     "1 or more"},
    {"warmup_steps", &FLAGS_warmup_steps, &StudyConfig::warmup_steps, 0,
     "0 or more"},
    {"train_size", &FLAGS_train_size, &StudyConfig::train_size, 0,
     "1 or more, or 0 to choose it"},
    {"threads", &FLAGS_threads, &StudyConfig::threads, 0,
     "1 or more, or 0 to choose it"},
    {"ablations", &FLAGS_ablations, &StudyConfig::ablations, 0,
     "1 or more, or 0 for none", kMostRepetitions},
    {"traffic_steps", &FLAGS_traffic_steps, &StudyConfig::traffic_steps, 0,
     "1 or more, or 0 for none"},
};

absl::Status CheckNumbers(const StudyConfig& config) {
  for (const CountFlag& flag : kCountFlags) {
    const int64_t value = config.*flag.field;
    if (value > flag.most) {
      return BadFlag("--", flag.name, "=", value, ": expected at most ",
                     flag.most);
    }
    if (value >= flag.least) continue;
    return BadFlag("--", flag.name, "=", value, ": expected ", flag.expected);
  }
  const int64_t least = config.warmup_steps + kMinMeasuredSteps;
  if (config.max_steps > kMostSteps) {
    return BadFlag("--max_steps=", config.max_steps, ": expected at most ",
                   kMostSteps);
  }
  if (config.max_steps >= least) return absl::OkStatus();
  return BadFlag("--max_steps=", config.max_steps, ": expected ", least,
                 " or more, ", kMinMeasuredSteps,
                 " to measure after --warmup_steps=", config.warmup_steps);
}

absl::Status CheckTrainerFlags(const StudyConfig& config) {
  for (const std::string& flag : config.trainer_flags) {
    if (flag.size() > 2 && absl::StartsWith(flag, "--")) continue;
    return BadFlag("--trainer_flags: \"", flag,
                   "\" is no flag; expected --name=value, with spaces between");
  }
  return absl::OkStatus();
}

// Splits `text` into items, each of which must be in `known` and occur once.
absl::StatusOr<std::vector<std::string>> ParseNames(
    absl::string_view flag, absl::string_view text,
    const std::vector<absl::string_view>& known) {
  const std::vector<std::string> names = absl::StrSplit(text, ',');
  std::set<absl::string_view> seen;
  for (const std::string& name : names) {
    if (!absl::c_linear_search(known, name)) {
      return BadFlag("--", flag, "=", text, ": \"", name,
                     "\" is unknown; expected some of ",
                     absl::StrJoin(known, ","));
    }
    if (seen.insert(name).second) continue;
    return BadFlag("--", flag, "=", text, ": ", name, " occurs twice");
  }
  return names;
}

// Returns the flags to pass to the trainers, if they are set.
std::vector<std::string> TrainerFlags() {
  std::vector<std::string> flags = absl::StrSplit(
      absl::GetFlag(FLAGS_trainer_flags), ' ', absl::SkipEmpty());
  for (const char* name : kHandedOnFlags) {
    const std::string value = absl::FindCommandLineFlag(name)->CurrentValue();
    if (!value.empty()) flags.push_back(absl::StrCat("--", name, "=", value));
  }
  return flags;
}

// Returns the value of the last of `flags` that begins with `name`, such as
// "--model="; `value` if none does.
std::string LastValue(const std::vector<std::string>& flags,
                      absl::string_view name, std::string value) {
  for (absl::string_view flag : flags) {
    if (absl::ConsumePrefix(&flag, name)) value = std::string(flag);
  }
  return value;
}

absl::Status CheckDataFolder(const std::vector<std::string>& flags) {
  const std::string dataset = LastValue(flags, "--dataset=", "");
  if (absl::GetFlag(FLAGS_data_dir).empty() || ReadsFiles(dataset))
    return absl::OkStatus();
  return BadFlag(
      "--data_dir: ",
      dataset.empty() ? "which dataset's files it holds is not given"
                      : absl::StrCat("--dataset=", dataset, " reads no files"),
      ": pass --dataset=", absl::StrJoin(kFileDatasets, " or --dataset="),
      " too");
}

absl::StatusOr<std::vector<Scaling>> PipelineScalings(
    std::vector<Scaling> scalings) {
  const std::string text = absl::GetFlag(FLAGS_pipeline_scaling);
  if (!text.empty()) return ParseScalings("pipeline_scaling", text);
  if (scalings.size() > 1) std::erase(scalings, Scaling::kWeak);
  return scalings;
}

// Sets the hosts, and --world_sizes if it is empty.
absl::Status SetHosts(StudyConfig* config) {
  ASSIGN_OR_RETURN(
      config->hosts,
      FindHosts(absl::GetFlag(FLAGS_hosts), absl::GetFlag(FLAGS_ranks_per_host),
                [](const char* name) { return std::getenv(name); }));
  if (!absl::GetFlag(FLAGS_world_sizes).empty()) return absl::OkStatus();
  const std::vector<int64_t> sizes = config->hosts.launcher.empty()
                                         ? StudyConfig().world_sizes
                                         : SizesOver(config->hosts);
  absl::SetFlag(&FLAGS_world_sizes, absl::StrJoin(sizes, ","));
  return absl::OkStatus();
}

// Sets the fields that are lists of names or sizes.
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
  ASSIGN_OR_RETURN(const std::vector<std::string> stages,
                   ParseNames("zero_stages", absl::GetFlag(FLAGS_zero_stages),
                              {"1", "2", "3"}));
  config->zero_stages.clear();
  for (const std::string& stage : stages)
    config->zero_stages.push_back(stage[0] - '0');
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

// Sets the layouts and the fields that depend on them. The other lists and the
// model must be set.
absl::Status SetLayouts(StudyConfig* config) {
  const std::string text = absl::GetFlag(FLAGS_layouts);
  if (text.empty()) return absl::OkStatus();
  for (const char* name : {"trainers", "zero_stages"}) {
    const auto* flag = absl::FindCommandLineFlag(name);
    if (!DiffersFromDefault(*flag)) continue;
    return BadFlag("--", name,
                   ": --layouts says which trainers run, and how: pass "
                   "one of the two");
  }
  if (text == "auto") {
    config->layouts = AllLayouts(*config);
  } else {
    ASSIGN_OR_RETURN(config->layouts, ParseLayouts(text));
  }
  config->trainers = {"single"};
  config->zero_stages.clear();
  for (const Layout& layout : config->layouts) {
    const std::string trainer = TrainerOf(layout);
    if (!absl::c_linear_search(config->trainers, trainer)) {
      config->trainers.push_back(trainer);
    }
    if (layout.zero > 0) config->zero_stages.push_back(layout.zero);
  }
  if (absl::GetFlag(FLAGS_pipeline_scaling).empty()) {
    config->pipeline_scalings = config->scalings;  // same for all layouts
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StudyConfig> ConfigFromFlags() {
  const HostInfo host = CollectHostInfo();
  StudyConfig config;
  RETURN_IF_ERROR(SetHosts(&config));
  RETURN_IF_ERROR(SetLists(&config));
  absl::SetFlag(&FLAGS_data_dir, UserPath(absl::GetFlag(FLAGS_data_dir)));
  for (const CountFlag& flag : kCountFlags) {
    config.*flag.field = absl::GetFlag(*flag.flag);
  }
  config.comm_bench = absl::GetFlag(FLAGS_comm_bench);
  config.max_steps = absl::GetFlag(FLAGS_max_steps);
  config.cores = host.cores;
  config.cpu_model = host.cpu_model;
  config.oversubscribe = absl::GetFlag(FLAGS_oversubscribe);
  config.seed = absl::GetFlag(FLAGS_seed);
  config.trainer_flags = TrainerFlags();
  RETURN_IF_ERROR(CheckDataFolder(config.trainer_flags));
  config.model = LastValue(config.trainer_flags, "--model=", "simple_cnn");
  RETURN_IF_ERROR(SetLayouts(&config));
  RETURN_IF_ERROR(CheckStudyConfig(config));
  return config;
}

StudyDescription DescribeStudy(const StudyConfig& study) {
  StudyDescription description;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (absl::EndsWith(flag->Filename(), "study/study_config.cc")) {
      description.flags[std::string(name)] = flag->CurrentValue();
    }
  }
  description.origin = {
      {"schema_version", RunRecord().schema_version},
      {"source_hash", ThisBuildStamp().source_hash},
      {"cpu_model", study.cpu_model},
      {"cores", absl::StrCat(study.cores)},
      {"threads_per_rank", absl::StrCat(ThreadsPerRank(study))}};
  return description;
}

std::string MemoryText(int64_t bytes) {
  const double amount = static_cast<double>(bytes);
  return amount < 1e9 ? absl::StrFormat("%.0f MB", amount / 1e6)
                      : absl::StrFormat("%.2f GB", amount / 1e9);
}

absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    int64_t& size = sizes.emplace_back();
    if (absl::SimpleAtoi(item, &size) && size >= 1 && size <= kMaxWorldSize) {
      continue;
    }
    return BadFlag("--world_sizes=", text, ": \"", item,
                   "\" is not a world size; expected whole numbers from 1 to ",
                   kMaxWorldSize, " with commas between, as in 1,2,4");
  }
  absl::c_sort(sizes);
  const auto twice = absl::c_adjacent_find(sizes);
  if (twice == sizes.end()) return sizes;
  return BadFlag("--world_sizes=", text, ": ", *twice, " occurs twice");
}

absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view flag,
                                                   absl::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names,
                   ParseNames(flag, text, {"strong", "weak", "fixed_memory"}));
  std::vector<Scaling> scalings;
  for (const std::string& name : names) {
    scalings.push_back(name == "strong" ? Scaling::kStrong
                       : name == "weak" ? Scaling::kWeak
                                        : Scaling::kFixedMemory);
  }
  return scalings;
}

absl::StatusOr<std::vector<std::string>> ParseTrainers(absl::string_view text) {
  return ParseNames("trainers", text,
                    {"single", "ddp", "data_parallel", "fsdp", "model_parallel",
                     "pipeline", "tensor_parallel", "hybrid"});
}

absl::StatusOr<std::vector<std::string>> ParseSchedules(
    absl::string_view flag, absl::string_view text) {
  const std::vector<std::string> known = ScheduleNames();
  return ParseNames(flag, text, {known.begin(), known.end()});
}

bool IsOneProcess(absl::string_view trainer) {
  return trainer == "data_parallel";
}

bool DividesBatch(absl::string_view trainer) {
  return trainer == "ddp" || trainer == "fsdp" || IsOneProcess(trainer);
}

bool PartitionsModel(absl::string_view trainer) {
  return trainer != "single" && !DividesBatch(trainer);
}

int64_t LayersOfModel(absl::string_view model) {
  if (model == "simple_cnn") return 4;  // conv1, conv2, fc1, fc2
  if (model == "mp_mlp") return 3;      // fc1, relu, fc2
  if (model == "linear") return 1;
  if (model == "mlp") return 3;  // at the default depth
  return 0;
}

int64_t LargestWorldSize(const StudyConfig& config) {
  return *absl::c_max_element(config.world_sizes);
}

int64_t MostRanksOfHost(const StudyConfig& config) {
  const int64_t largest = LargestWorldSize(config);
  return config.hosts.launcher.empty()
             ? largest
             : std::min(largest, config.hosts.ranks_each);
}

int64_t ThreadsPerRank(const StudyConfig& config) {
  if (config.threads > 0) return config.threads;
  return std::max<int64_t>(1, config.cores / MostRanksOfHost(config));
}

bool SearchesMemory(const StudyConfig& config) {
  return absl::c_linear_search(config.scalings, Scaling::kFixedMemory) ||
         absl::c_linear_search(config.pipeline_scalings, Scaling::kFixedMemory);
}

absl::Status CheckStudyConfig(const StudyConfig& config) {
  for (const auto& check :
       {CheckNumbers, CheckTrainerFlags, CheckWorldSizes, CheckCombinations}) {
    RETURN_IF_ERROR(check(config));
  }
  return absl::OkStatus();
}

}  // namespace rankwise

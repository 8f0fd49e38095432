#include <algorithm>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/study_plan.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kMaxWorldSize = 4096;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckCores(const StudyConfig& config) {
  if (config.oversubscribe) return absl::OkStatus();
  const int64_t threads = ThreadsPerRank(config);
  for (int64_t world_size : config.world_sizes) {
    if (world_size * threads <= config.cores) continue;
    return Bad("--world_sizes: ", Counted(world_size, "rank"), " of ",
               Counted(threads, "thread"), " need ", world_size * threads,
               " cores, and this machine has ", config.cores,
               ": leave that size out, or pass --oversubscribe to run it all "
               "the same, marked in the table");
  }
  return absl::OkStatus();
}

absl::Status CheckDivision(const StudyConfig& config) {
  const bool strong = absl::c_linear_search(config.trainers, "ddp") &&
                      absl::c_linear_search(config.scalings, Scaling::kStrong);
  for (int64_t world_size : config.world_sizes) {
    if (!strong || config.batch_size % world_size == 0) continue;
    return Bad("--batch_size=", config.batch_size,
               ": strong scaling divides it among the ranks, and it does not "
               "divide by the world size ",
               world_size, ": pass another batch size or --scaling=weak");
  }
  return absl::OkStatus();
}

absl::Status CheckMicroBatches(const StudyConfig& config) {
  if (!absl::c_linear_search(config.trainers, "pipeline"))
    return absl::OkStatus();
  if (config.micro_batches < 1) {
    return Bad("--microbatches=", config.micro_batches, ": expected 1 or more");
  }
  if (config.batch_size % config.micro_batches == 0) return absl::OkStatus();
  return Bad(
      "--batch_size=", config.batch_size,
      ": the pipeline divides it into --microbatches=", config.micro_batches,
      ", and it does not divide: pass another of the two");
}

// model_parallel and pipeline alone need something to do.
absl::Status CheckAnyRun(const StudyConfig& config) {
  const bool all_cut = absl::c_all_of(config.trainers, CutsTheModel);
  if (!all_cut || LargestWorldSize(config) > 1) return absl::OkStatus();
  return Bad(
      "--world_sizes=1: model_parallel and pipeline cut the model over "
      "the ranks and need 2 or more");
}

absl::Status CheckMemoryLimit(const StudyConfig& config) {
  if (SearchesMemory(config) && config.memory_limit_bytes <= 0) {
    return Bad(
        "--memory_limit: --scaling=fixed_memory gives every rank the largest "
        "batch below it: pass one, such as --memory_limit=4GB");
  }
  if (SearchesMemory(config) || config.memory_limit_bytes == 0) {
    return absl::OkStatus();
  }
  return Bad(
      "--memory_limit: nothing depends on it but --scaling=fixed_memory: leave "
      "it out, or ask for that");
}

absl::Status CheckNumbers(const StudyConfig& config) {
  struct Bound {
    absl::string_view flag;
    int64_t value, least;
    absl::string_view expected;
  };
  for (const Bound& bound : {
           Bound{"repetitions", config.repetitions, 1,
                 "1 or more, and 2 or more for an interval"},
           Bound{"batch_size", config.batch_size, 1, "1 or more"},
           Bound{"warmup_steps", config.warmup_steps, 0, "0 or more"},
           Bound{"train_size", config.train_size, 0,
                 "1 or more, or 0 to choose it"},
           Bound{"threads", config.threads, 0, "1 or more, or 0 to choose it"},
           Bound{"ablations", config.ablations, 0, "1 or more, or 0 for none"},
           Bound{"traffic_steps", config.traffic_steps, 0,
                 "1 or more, or 0 for none"},
       }) {
    if (bound.value >= bound.least) continue;
    return Bad("--", bound.flag, "=", bound.value, ": expected ",
               bound.expected);
  }
  const int64_t least = config.warmup_steps + kMinMeasuredSteps;
  if (config.max_steps >= least) return absl::OkStatus();
  return Bad("--max_steps=", config.max_steps, ": expected ", least,
             " or more, ", kMinMeasuredSteps,
             " to measure after --warmup_steps=", config.warmup_steps);
}

absl::Status CheckTrainerFlags(const StudyConfig& config) {
  for (const std::string& flag : config.trainer_flags) {
    if (flag.size() > 2 && absl::StartsWith(flag, "--")) continue;
    return Bad("--trainer_flags: \"", flag,
               "\" is no flag; expected --name=value, with spaces between");
  }
  return absl::OkStatus();
}

absl::Status CheckDistinct(absl::string_view flag, absl::string_view text) {
  std::set<absl::string_view> seen;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    if (seen.insert(item).second) continue;
    return Bad("--", flag, "=", text, ": ", item, " occurs twice");
  }
  return absl::OkStatus();
}

// The items of `text`, each of which must be one of `known`.
absl::StatusOr<std::vector<std::string>> ParseNames(
    absl::string_view flag, absl::string_view text,
    const std::vector<absl::string_view>& known) {
  const std::vector<std::string> names = absl::StrSplit(text, ',');
  for (const std::string& name : names) {
    if (absl::c_linear_search(known, name)) continue;
    return Bad("--", flag, "=", text, ": \"", name,
               "\" is unknown; expected some of ", absl::StrJoin(known, ","));
  }
  RETURN_IF_ERROR(CheckDistinct(flag, text));
  return names;
}

}  // namespace

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
    return Bad("--world_sizes=", text, ": \"", item,
               "\" is not a world size; expected whole numbers from 1 to ",
               kMaxWorldSize, " with commas between, as in 1,2,4");
  }
  RETURN_IF_ERROR(CheckDistinct("world_sizes", text));
  absl::c_sort(sizes);
  return sizes;
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
                    {"single", "ddp", "model_parallel", "pipeline"});
}

absl::StatusOr<std::vector<std::string>> ParseSchedules(
    absl::string_view flag, absl::string_view text) {
  return ParseNames(
      flag, text,
      {"naive", "gpipe", "1f1b", "interleaved_1f1b", "zero_bubble_h1", "zbv"});
}

bool CutsTheModel(absl::string_view trainer) {
  return trainer == "model_parallel" || trainer == "pipeline";
}

int64_t ChunksPerRank(absl::string_view schedule) {
  return schedule == "interleaved_1f1b" || schedule == "zbv" ? 2 : 1;
}

int64_t LayersOfModel(absl::string_view model) {
  if (model == "simple_cnn") return 4;  // conv1, conv2, fc1, fc2
  if (model == "mp_mlp") return 3;      // fc1, relu, fc2
  if (model == "linear") return 1;
  if (model == "mlp") return 3;  // at its default depth
  return 0;
}

int64_t LargestWorldSize(const StudyConfig& config) {
  return *absl::c_max_element(config.world_sizes);
}

int64_t ThreadsPerRank(const StudyConfig& config) {
  if (config.threads > 0) return config.threads;
  return std::max<int64_t>(1, config.cores / LargestWorldSize(config));
}

bool SearchesMemory(const StudyConfig& config) {
  return absl::c_linear_search(config.scalings, Scaling::kFixedMemory) ||
         absl::c_linear_search(config.pipeline_scalings, Scaling::kFixedMemory);
}

absl::Status CheckStudyConfig(const StudyConfig& config) {
  for (const auto& check :
       {CheckNumbers, CheckTrainerFlags, CheckDivision, CheckMicroBatches,
        CheckAnyRun, CheckMemoryLimit, CheckCores}) {
    RETURN_IF_ERROR(check(config));
  }
  return absl::OkStatus();
}

}  // namespace rankwise

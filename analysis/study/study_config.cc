#include "analysis/study/study_config.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/runs/throughput.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kMaxWorldSize = 4096;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// Splits at commas and hands every item to `add`; refuses an empty list and an
// item that occurs twice.
template <typename Add>
absl::Status ForEachItem(absl::string_view flag, absl::string_view text,
                         Add add) {
  std::set<std::string> seen;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    if (!seen.insert(std::string(item)).second) {
      return Bad("--", flag, "=", text, ": ", item, " occurs twice");
    }
    RETURN_IF_ERROR(add(item));
  }
  return absl::OkStatus();
}

absl::Status CheckCores(const StudyConfig& config) {
  if (config.oversubscribe) return absl::OkStatus();
  const int64_t threads = ThreadsPerRank(config);
  for (int64_t world_size : config.world_sizes) {
    if (world_size * threads <= config.cores) continue;
    return Bad("--world_sizes: ", world_size, " ranks of ", threads,
               threads == 1 ? " thread" : " threads", " need ",
               world_size * threads, " cores, and this machine has ",
               config.cores,
               ": leave that size out, or pass --oversubscribe to run it all "
               "the same, marked in the table");
  }
  return absl::OkStatus();
}

template <typename T, typename U>
bool Contains(const std::vector<T>& items, const U& item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

absl::Status CheckDivision(const StudyConfig& config) {
  const bool strong = Contains(config.trainers, "ddp") &&
                      Contains(config.scalings, Scaling::kStrong);
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
  if (!Contains(config.trainers, "pipeline")) return absl::OkStatus();
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
  const bool all_cut =
      std::all_of(config.trainers.begin(), config.trainers.end(), CutsTheModel);
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

absl::Status CheckNotNegative(absl::string_view flag, int64_t value,
                              absl::string_view what_0_means) {
  if (value >= 0) return absl::OkStatus();
  return Bad("--", flag, "=", value, ": expected 1 or more, or 0 ",
             what_0_means);
}

// The items of `text`, each of which must be one of `known`.
absl::StatusOr<std::vector<std::string>> ParseNames(
    absl::string_view flag, absl::string_view text,
    const std::vector<std::string>& known) {
  std::vector<std::string> names;
  RETURN_IF_ERROR(ForEachItem(flag, text, [&](absl::string_view item) {
    if (!Contains(known, item)) {
      return Bad("--", flag, "=", text, ": \"", item,
                 "\" is unknown; expected some of ", absl::StrJoin(known, ","));
    }
    names.push_back(std::string(item));
    return absl::OkStatus();
  }));
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
  RETURN_IF_ERROR(ForEachItem("world_sizes", text, [&](absl::string_view item) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(item, &size) || size < 1 || size > kMaxWorldSize) {
      return Bad("--world_sizes=", text, ": \"", item,
                 "\" is not a world size; expected whole numbers from 1 to ",
                 kMaxWorldSize, " with commas between, as in 1,2,4");
    }
    sizes.push_back(size);
    return absl::OkStatus();
  }));
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view flag,
                                                   absl::string_view text) {
  std::vector<Scaling> scalings;
  RETURN_IF_ERROR(ForEachItem(flag, text, [&](absl::string_view item) {
    for (Scaling scaling :
         {Scaling::kStrong, Scaling::kWeak, Scaling::kFixedMemory}) {
      if (item != ScalingName(scaling)) continue;
      scalings.push_back(scaling);
      return absl::OkStatus();
    }
    return Bad("--", flag, "=", text, ": \"", item,
               "\" is unknown; expected some of strong,weak,fixed_memory");
  }));
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
  return *std::max_element(config.world_sizes.begin(),
                           config.world_sizes.end());
}

int64_t ThreadsPerRank(const StudyConfig& config) {
  if (config.threads > 0) return config.threads;
  return std::max<int64_t>(1, config.cores / LargestWorldSize(config));
}

bool SearchesMemory(const StudyConfig& config) {
  return Contains(config.scalings, Scaling::kFixedMemory) ||
         Contains(config.pipeline_scalings, Scaling::kFixedMemory);
}

absl::Status CheckStudyConfig(const StudyConfig& config) {
  if (config.repetitions < 1) {
    return Bad("--repetitions=", config.repetitions,
               ": expected 1 or more, and 2 or more for an interval");
  }
  if (config.batch_size < 1) {
    return Bad("--batch_size=", config.batch_size, ": expected 1 or more");
  }
  if (config.warmup_steps < 0) {
    return Bad("--warmup_steps=", config.warmup_steps, ": expected 0 or more");
  }
  if (config.max_steps < config.warmup_steps + kMinMeasuredSteps) {
    return Bad("--max_steps=", config.max_steps, ": expected ",
               config.warmup_steps + kMinMeasuredSteps, " or more, ",
               kMinMeasuredSteps,
               " to measure after --warmup_steps=", config.warmup_steps);
  }
  RETURN_IF_ERROR(
      CheckNotNegative("train_size", config.train_size, "to choose it"));
  RETURN_IF_ERROR(CheckNotNegative("threads", config.threads, "to choose it"));
  RETURN_IF_ERROR(CheckNotNegative("ablations", config.ablations, "for none"));
  RETURN_IF_ERROR(
      CheckNotNegative("traffic_steps", config.traffic_steps, "for none"));
  for (const std::string& flag : config.trainer_flags) {
    if (flag.size() > 2 && flag.substr(0, 2) == "--") continue;
    return Bad("--trainer_flags: \"", flag,
               "\" is no flag; expected --name=value, with spaces between");
  }
  for (const auto& check : {CheckDivision, CheckMicroBatches, CheckAnyRun,
                            CheckMemoryLimit, CheckCores}) {
    RETURN_IF_ERROR(check(config));
  }
  return absl::OkStatus();
}

}  // namespace rankwise

#include "analysis/study/study_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

using CellKey = std::tuple<std::string, int64_t, int64_t>;

std::set<CellKey> Cells(const StudyConfig& config) {
  std::set<CellKey> cells;
  for (const std::string& trainer : config.trainers) {
    if (trainer == "single") {
      cells.emplace(trainer, 1, config.batch_size);
      continue;
    }
    for (int64_t world_size : config.world_sizes) {
      for (Scaling scaling : config.scalings) {
        const bool strong = scaling == Scaling::kStrong;
        cells.emplace(trainer, world_size,
                      config.batch_size / (strong ? world_size : 1));
      }
    }
  }
  return cells;
}

// Examples of the largest step times the steps: one epoch holds every run.
int64_t TrainSize(const StudyConfig& config) {
  if (config.train_size > 0) return config.train_size;
  const int64_t largest =
      *std::max_element(config.world_sizes.begin(), config.world_sizes.end());
  return config.batch_size * largest * config.max_steps;
}

// Epochs enough for every run, the same number for all.
int64_t Epochs(const StudyConfig& config) {
  const int64_t steps_an_epoch = std::max<int64_t>(
      1, TrainSize(config) / (config.batch_size * LargestWorldSize(config)));
  return (config.max_steps + steps_an_epoch - 1) / steps_an_epoch;
}

}  // namespace

std::string PlannedRun::Name() const {
  return absl::StrCat(trainer, " x", world_size, ", batch ", rank_batch,
                      " per rank");
}

std::string PlannedRun::FileStem() const {
  return absl::StrCat(trainer, "-x", world_size, "-batch", rank_batch, "-rep",
                      repetition);
}

std::vector<PlannedRun> PlanStudy(const StudyConfig& config) {
  std::vector<PlannedRun> runs;
  for (int64_t repetition = 1; repetition <= config.repetitions; ++repetition) {
    for (const auto& [trainer, world_size, batch] : Cells(config)) {
      runs.push_back({trainer, world_size, batch, repetition});
    }
  }
  // Fisher and Yates, so that the order does not depend on the library.
  std::mt19937_64 random(config.seed);
  for (size_t i = runs.size(); i > 1; --i) {
    std::swap(runs[i - 1], runs[random() % i]);
  }
  return runs;
}

std::vector<std::string> TrainerArguments(const StudyConfig& config,
                                          const PlannedRun& run,
                                          const std::string& record_path) {
  std::vector<std::string> arguments = {
      absl::StrCat("--record=", record_path),
      absl::StrCat("--batch_size=", run.rank_batch),
      absl::StrCat("--max_steps=", config.max_steps),
      absl::StrCat("--epochs=", Epochs(config)),
      absl::StrCat("--train_size=", TrainSize(config)),
      absl::StrCat("--threads=", ThreadsPerRank(config)),
      absl::StrCat("--seed=", config.seed),
      "--eval=false"};
  if (run.trainer != "single") {
    arguments.push_back(absl::StrCat("--nproc=", run.world_size));
  }
  arguments.insert(arguments.end(), config.trainer_flags.begin(),
                   config.trainer_flags.end());
  return arguments;
}

}  // namespace rankwise

#include "analysis/study/study_plan.h"

#include <algorithm>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace rankwise {
namespace {

// The schedules' own numbers of stages per rank.
int64_t ChunksPerRank(absl::string_view schedule) {
  return schedule == "interleaved_1f1b" || schedule == "zbv" ? 2 : 1;
}

// Repetitions are equal.
struct ByConfiguration {
  bool operator()(const PlannedRun& a, const PlannedRun& b) const {
    const auto key = [](const PlannedRun& run) {
      return std::tie(run.trainer, run.schedule, run.world_size, run.batch_size,
                      run.micro_batches);
    };
    return key(a) < key(b);
  }
};
using RunSet = std::set<PlannedRun, ByConfiguration>;

// One run of every configuration; equal ones once.
class Cells {
 public:
  explicit Cells(const StudyConfig& config) : config_(config) {
    for (const std::string& trainer : config.trainers) {
      if (trainer == "single") {
        runs_.insert({trainer, 1, config.batch_size});
        continue;
      }
      for (int64_t world_size : config.world_sizes) Add(trainer, world_size);
    }
  }

  const RunSet& runs() const { return runs_; }
  const std::vector<std::string>& not_run() const { return not_run_; }

 private:
  void Add(const std::string& trainer, int64_t world_size) {
    if (trainer == "ddp") {
      for (Scaling scaling : config_.scalings) {
        const int64_t ranks = scaling == Scaling::kStrong ? world_size : 1;
        runs_.insert({trainer, world_size, config_.batch_size / ranks});
      }
    } else if (world_size > 1 && trainer == "model_parallel") {
      AddIfItFits({trainer, world_size, config_.batch_size});
    } else if (world_size > 1) {
      for (const std::string& schedule : config_.schedules) {
        AddIfItFits({.trainer = trainer,
                     .world_size = world_size,
                     .batch_size = config_.batch_size / config_.micro_batches,
                     .schedule = schedule,
                     .micro_batches = config_.micro_batches});
      }
    }
  }

  // `run` is that of strong scaling.
  void AddIfItFits(PlannedRun run) {
    const int64_t stages = run.world_size * ChunksPerRank(run.schedule);
    if (config_.model_layers > 0 && stages > config_.model_layers) {
      not_run_.push_back(absl::StrCat(
          run.trainer, run.schedule.empty() ? "" : " ", run.schedule, " x",
          run.world_size, ": the model would be cut into ", stages,
          " stages, and ", config_.model, " has ", config_.model_layers,
          config_.model_layers == 1 ? " layer" : " layers"));
      return;
    }
    for (Scaling scaling : config_.pipeline_scalings) {
      PlannedRun scaled = run;
      const int64_t times = scaling == Scaling::kStrong ? 1 : run.world_size;
      (run.trainer == "pipeline" ? scaled.micro_batches : scaled.batch_size) *=
          times;
      runs_.insert(scaled);
    }
  }

  const StudyConfig& config_;
  RunSet runs_;
  std::vector<std::string> not_run_;
};

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
  if (trainer == "pipeline") {
    return absl::StrCat(trainer, " ", schedule, " x", world_size, ", ",
                        micro_batches, " micro-batches of ", batch_size);
  }
  return absl::StrCat(trainer, " x", world_size, ", batch ", batch_size,
                      CutsTheModel(trainer) ? "" : " per rank");
}

std::string PlannedRun::FileStem() const {
  const bool pipeline = trainer == "pipeline";
  return absl::StrCat(trainer, pipeline ? "-" : "", schedule, "-x", world_size,
                      "-batch",
                      pipeline ? absl::StrCat(micro_batches, "x") : "",
                      batch_size, "-rep", repetition);
}

StudyPlan PlanStudy(const StudyConfig& config) {
  const Cells cells(config);
  StudyPlan plan;
  plan.not_run = cells.not_run();
  std::vector<PlannedRun>& runs = plan.runs;
  for (int64_t repetition = 1; repetition <= config.repetitions; ++repetition) {
    for (const PlannedRun& run : cells.runs()) {
      runs.push_back(run);
      runs.back().repetition = repetition;
    }
  }
  // Fisher and Yates, so that the order does not depend on the library.
  std::mt19937_64 random(config.seed);
  for (size_t i = runs.size(); i > 1; --i) {
    std::swap(runs[i - 1], runs[random() % i]);
  }
  return plan;
}

std::vector<std::string> TrainerArguments(const StudyConfig& config,
                                          const PlannedRun& run,
                                          const std::string& record_path) {
  std::vector<std::string> arguments = {
      absl::StrCat("--record=", record_path),
      absl::StrCat("--batch_size=", run.batch_size),
      absl::StrCat("--max_steps=", config.max_steps),
      absl::StrCat("--epochs=", Epochs(config)),
      absl::StrCat("--train_size=", TrainSize(config)),
      absl::StrCat("--threads=", ThreadsPerRank(config)),
      absl::StrCat("--seed=", config.seed),
      "--eval=false"};
  if (run.trainer != "single") {
    arguments.push_back(absl::StrCat("--nproc=", run.world_size));
  }
  if (run.trainer == "pipeline") {
    arguments.push_back(absl::StrCat("--pp=", run.world_size));
    arguments.push_back("--dp=1");
    arguments.push_back(absl::StrCat("--schedule=", run.schedule));
    arguments.push_back(absl::StrCat("--chunks=", ChunksPerRank(run.schedule)));
    arguments.push_back(absl::StrCat("--microbatches=", run.micro_batches));
  }
  arguments.insert(arguments.end(), config.trainer_flags.begin(),
                   config.trainer_flags.end());
  return arguments;
}

}  // namespace rankwise

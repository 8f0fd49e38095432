#include "analysis/study/run_command.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

int64_t LargestGlobalBatch(const StudyConfig& config) {
  return std::max(config.largest_global_batch,
                  config.batch_size * LargestWorldSize(config));
}

// Examples of the largest step times the steps: one epoch holds every run.
int64_t TrainSize(const StudyConfig& config) {
  if (config.train_size > 0) return config.train_size;
  return LargestGlobalBatch(config) * config.max_steps;
}

// Epochs enough for every run, the same number for all.
int64_t Epochs(const StudyConfig& config) {
  const int64_t steps_an_epoch =
      std::max<int64_t>(1, TrainSize(config) / LargestGlobalBatch(config));
  return (config.max_steps + steps_an_epoch - 1) / steps_an_epoch;
}

// All-reduces for data parallelism, messages for pipelines; the ring keeps
// every link busy, the ping-pong one. By the host's clock, as the cost models
// want them: a GPU's events do not see the launch.
std::vector<std::string> CommBenchArguments(const StudyConfig& config,
                                            const PlannedRun& run,
                                            const std::string& record_path) {
  std::vector<std::string> arguments = {
      absl::StrCat("--record=", record_path),
      absl::StrCat("--nproc=", run.world_size),
      "--collectives=all_reduce,send_recv,ping_pong",
      "--min_bytes=8",
      "--max_bytes=16M",
      "--timing=host",
      absl::StrCat("--threads=", ThreadsPerRank(config))};
  for (const std::string& flag : config.trainer_flags) {
    if (absl::StartsWith(flag, "--backend=") ||
        absl::StartsWith(flag, "--device=")) {
      arguments.push_back(flag);
    }
  }
  return arguments;
}

void AddPipelineArguments(const PlannedRun& run,
                          std::vector<std::string>* arguments) {
  arguments->insert(arguments->end(),
                    {absl::StrCat("--pp=", run.world_size), "--dp=1",
                     absl::StrCat("--schedule=", run.schedule),
                     absl::StrCat("--chunks=", ChunksPerRank(run.schedule)),
                     absl::StrCat("--microbatches=", run.micro_batches)});
}

}  // namespace

std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path) {
  if (!run.IsTraining()) return CommBenchArguments(config, run, record_path);
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
  if (run.trainer == "pipeline") AddPipelineArguments(run, &arguments);
  if (run.skip_communication) {
    arguments.push_back("--skip_communication=true");
  } else if (run.trainer == "ddp" && config.traffic_steps > 0) {
    arguments.push_back(absl::StrCat("--traffic_steps=", config.traffic_steps));
  }
  arguments.insert(arguments.end(), config.trainer_flags.begin(),
                   config.trainer_flags.end());
  return arguments;
}

}  // namespace rankwise

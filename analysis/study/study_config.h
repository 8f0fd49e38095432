// What a study runs.

#ifndef ANALYSIS_STUDY_STUDY_CONFIG_H_
#define ANALYSIS_STUDY_STUDY_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/efficiency.h"

namespace rankwise {

struct StudyConfig {
  std::vector<std::string> trainers = {"single", "ddp"};
  std::vector<int64_t> world_sizes = {1, 2};  // of every trainer but single
  std::vector<Scaling> scalings = {Scaling::kStrong, Scaling::kWeak};
  int64_t repetitions = 5;
  // Examples a step: of all ranks under strong, of each under weak scaling.
  int64_t batch_size = 64;
  int64_t max_steps = 60;      // of every run, warm-up included
  int64_t warmup_steps = 10;   // of which are left out
  int64_t train_size = 0;      // 0: enough that no run needs a second epoch
  int64_t threads = 0;         // per rank; 0: cores / the largest world size
  int64_t cores = 1;           // of this machine
  bool oversubscribe = false;  // allow more ranks * threads than cores
  uint64_t seed = 0;           // of the trainers, and of the order of runs
  // Further flags for every trainer, each as "--name=value".
  std::vector<std::string> trainer_flags;
};

// "1,2,4" as world sizes, "strong,weak", and "single,ddp"; each refuses what is
// empty, unknown or said twice.
absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(absl::string_view text);
absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseTrainers(absl::string_view text);

// Fails with a message that names the flag to change.
absl::Status CheckStudyConfig(const StudyConfig& config);

int64_t LargestWorldSize(const StudyConfig& config);

// Threads per rank of every run.
int64_t ThreadsPerRank(const StudyConfig& config);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_CONFIG_H_

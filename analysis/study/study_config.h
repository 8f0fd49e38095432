// The configuration of a study, and the flags that describe it. study.cc
// defines those for its folders, timeout and output.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_CONFIG_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/study/hosts.h"
#include "analysis/study/layouts.h"
#include "analysis/study/study_folder.h"

ABSL_DECLARE_FLAG(int64_t, warmup_steps);
ABSL_DECLARE_FLAG(bool, oversubscribe);

namespace rankwise {

// Values of the flags with the same names; see --help.
struct StudyConfig {
  std::vector<std::string> trainers = {"single", "ddp", "model_parallel",
                                       "pipeline"};
  std::vector<int64_t> world_sizes = {1, 2};
  std::vector<Scaling> scalings = {Scaling::kStrong, Scaling::kWeak};
  // for the trainers of PartitionsModel, instead of `scalings`
  std::vector<Scaling> pipeline_scalings = {Scaling::kStrong};
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b",
                                        "zero_bubble_h1"};
  // If empty, `trainers` run at all world sizes, hybrid with DefaultLayout.
  // Otherwise `trainers` are single and those that run the layouts.
  std::vector<Layout> layouts = {};
  std::vector<int> zero_stages = {3};  // for fsdp
  int64_t micro_batches = 4;
  std::string model;  // its layers (LayersOfModel) limit the stages
  int64_t repetitions = 5;
  int64_t batch_size = 64;
  int64_t max_steps = 60;
  int64_t warmup_steps = 10;
  int64_t train_size = 0;
  int64_t threads = 0;
  StudyHosts hosts = {};
  int64_t cores = 1;      // of this machine, and of each host
  std::string cpu_model;  // of this machine; "" if unknown
  bool oversubscribe = false;
  uint64_t seed = 0;
  // Flags passed unchanged to every trainer, as "--name=value".
  std::vector<std::string> trainer_flags;
  int64_t ablations = 3;
  std::vector<std::string> ablation_schedules = {"1f1b"};
  bool comm_bench = true;
  int64_t traffic_steps = 5;
  int64_t memory_limit_bytes = 0;
  // Examples per step of the largest run; 0 for batch_size * the largest world
  // size.
  int64_t largest_global_batch = 0;
  std::string trainer_dir;  // folder of the trainers' binaries
  // Receives STEM.jsonl of every successful run, logs/STEM.log of every run,
  // and durations.csv; records of failed runs stay in STEM.jsonl.incomplete.
  // Must be prepared by PrepareStudyFolder before the first run.
  std::string output_dir;
  absl::Duration run_timeout = absl::Minutes(10);
};

// Flags passed unchanged to every trainer.
inline constexpr const char* kHandedOnFlags[] = {
    "model", "dataset", "device", "backend", "precision", "data_dir"};

// Returns the configuration without the folders and the timeout, which study.cc
// sets from its own flags. Resolves --data_dir with UserPath. Errors name the
// flag to change.
absl::StatusOr<StudyConfig> ConfigFromFlags();

// Returns the content of study.flags for a study with this configuration.
StudyDescription DescribeStudy(const StudyConfig& study);

// Parse "1,2,4", "strong,weak", "single,ddp" and "gpipe,1f1b"; each rejects
// empty, unknown and repeated items. `flag` is for messages.
absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(absl::string_view text);
absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view flag,
                                                   absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseTrainers(absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseSchedules(absl::string_view flag,
                                                        absl::string_view text);

// The error names the flag to change.
absl::Status CheckStudyConfig(const StudyConfig& config);

// Whether the trainer's ranks share a batch, so that a cell's batch is per
// rank.
bool DividesBatch(absl::string_view trainer);

// Whether these ranks are replicas in one process, whose --batch_size is the
// sum over all of them.
bool IsOneProcess(absl::string_view trainer);

// Whether the trainer's ranks hold parts of one model.
bool PartitionsModel(absl::string_view trainer);

// Returns the number of layers at which the trainers' model of that name can be
// divided, if it does not depend on other flags; else 0.
int64_t LayersOfModel(absl::string_view model);

int64_t LargestWorldSize(const StudyConfig& config);

// Returns the largest number of a run's ranks on one host.
int64_t MostRanksOfHost(const StudyConfig& config);

// Returns the threads per rank of every run.
int64_t ThreadsPerRank(const StudyConfig& config);

// Whether some cells' batches are found by searching under the memory limit.
bool SearchesMemory(const StudyConfig& config);

// Returns "312 MB", "1.20 GB".
std::string MemoryText(int64_t bytes);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_CONFIG_H_

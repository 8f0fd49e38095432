// The configuration of a study, and the flags that describe it; those that say
// what is done with a study, or where, are study.cc's.
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

// The values of the flags of the same names; --help says what they mean.
struct StudyConfig {
  std::vector<std::string> trainers = {"single", "ddp", "model_parallel",
                                       "pipeline"};
  std::vector<int64_t> world_sizes = {1, 2};
  std::vector<Scaling> scalings = {Scaling::kStrong, Scaling::kWeak};
  // Of the trainers that CutsTheModel names, instead of `scalings`.
  std::vector<Scaling> pipeline_scalings = {Scaling::kStrong};
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b",
                                        "zero_bubble_h1"};
  // Empty: `trainers` at all world sizes, hybrid with DefaultLayout. Otherwise
  // `trainers` are single and those that carry the layouts.
  std::vector<Layout> layouts = {};
  std::vector<int> zero_stages = {3};  // of fsdp
  int64_t micro_batches = 4;
  std::string model;  // more stages than its layers (LayersOfModel) are not run
  int64_t repetitions = 5;
  int64_t batch_size = 64;
  int64_t max_steps = 60;
  int64_t warmup_steps = 10;
  int64_t train_size = 0;
  int64_t threads = 0;
  StudyHosts hosts = {};
  int64_t cores = 1;      // of this machine, and of each host
  std::string cpu_model;  // of this machine; "" unknown
  bool oversubscribe = false;
  uint64_t seed = 0;
  // All flags that every trainer takes as they are, each as "--name=value".
  std::vector<std::string> trainer_flags;
  int64_t ablations = 3;
  std::vector<std::string> ablation_schedules = {"1f1b"};
  bool comm_bench = true;
  int64_t traffic_steps = 5;
  int64_t memory_limit_bytes = 0;
  // Examples of the largest step of any run; 0: batch_size * the largest world
  // size.
  int64_t largest_global_batch = 0;
  std::string trainer_dir;  // of the trainers' binaries
  // Takes STEM.jsonl of every run that ended well, logs/STEM.log of every run,
  // and durations.csv; what another run recorded stays STEM.jsonl.incomplete.
  // It must have been prepared by PrepareStudyFolder before a run is made.
  std::string output_dir;
  absl::Duration run_timeout = absl::Minutes(10);
};

// The flags that are passed on to every trainer as they are.
inline constexpr const char* kHandedOnFlags[] = {
    "model", "dataset", "device", "backend", "precision", "data_dir"};

// Without the folders and the timeout, which study.cc sets by its own flags.
// Makes --data_dir a UserPath. Fails with a message that names the flag to
// change.
absl::StatusOr<StudyConfig> ConfigFromFlags();

// What study.flags says of a study that the flags describe.
StudyDescription DescribeStudy(const StudyConfig& study);

// "1,2,4", "strong,weak", "single,ddp", and "gpipe,1f1b"; each refuses
// empty, unknown and repeated items. `flag`: for messages.
absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(absl::string_view text);
absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view flag,
                                                   absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseTrainers(absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseSchedules(absl::string_view flag,
                                                        absl::string_view text);

// Fails with a message that names the flag to change.
absl::Status CheckStudyConfig(const StudyConfig& config);

// True for the trainers whose ranks divide a batch among them: a cell's batch
// is that of every rank.
bool SharesOutTheBatch(absl::string_view trainer);

// True for those of them whose ranks are replicas in one process, which takes
// the batch of all of them.
bool IsOneProcess(absl::string_view trainer);

// True for the trainers whose ranks hold parts of one model.
bool CutsTheModel(absl::string_view trainer);

// Layers that the trainers' model of that name can be cut at, where they do not
// depend on other flags; else 0.
int64_t LayersOfModel(absl::string_view model);

int64_t LargestWorldSize(const StudyConfig& config);

// The most ranks that a run has on one host.
int64_t MostRanksOfHost(const StudyConfig& config);

// Threads per rank of every run.
int64_t ThreadsPerRank(const StudyConfig& config);

// True where some cells' batch is not given, but follows from the memory limit.
bool SearchesMemory(const StudyConfig& config);

// "312 MB", "1.20 GB".
std::string MemoryText(int64_t bytes);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_CONFIG_H_

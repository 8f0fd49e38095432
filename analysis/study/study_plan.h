// What a study runs: its configuration, the runs in the order they are made,
// and their command lines.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/scaling/efficiency.h"

namespace rankwise {

struct StudyConfig {
  std::vector<std::string> trainers = {"single", "ddp", "model_parallel",
                                       "pipeline"};
  // Of every trainer but single; model_parallel and pipeline cut the model over
  // the ranks, and run at those above 1.
  std::vector<int64_t> world_sizes = {1, 2};
  std::vector<Scaling> scalings = {Scaling::kStrong, Scaling::kWeak};
  // Of model_parallel and pipeline instead of `scalings`.
  std::vector<Scaling> pipeline_scalings = {Scaling::kStrong};
  // Of the trainer pipeline.
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b",
                                        "zero_bubble_h1"};
  // Of the trainer pipeline, per step under strong scaling; times the world
  // size under weak.
  int64_t micro_batches = 4;
  std::string model;  // more stages than its layers (LayersOfModel) are not run
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
  // Repetitions of the runs that only separate the causes of a loss: the base
  // trainer with the smaller batches, and cells without communication. 0: none.
  int64_t ablations = 3;
  // Of the trainer pipeline; those that `schedules` lacks do not count.
  std::vector<std::string> ablation_schedules = {"1f1b"};
  bool comm_bench = true;     // measure communication at world sizes above 1
  int64_t traffic_steps = 5;  // of ddp's runs, for predictions
  // Of the fullest rank of every cell under Scaling::kFixedMemory.
  int64_t memory_limit_bytes = 0;
  // Examples of the largest step of any run; 0: batch_size * the largest world
  // size.
  int64_t largest_global_batch = 0;
};

// "312 MB", "1.20 GB".
std::string MemoryText(int64_t bytes);

// "1,2,4" as world sizes, "strong,weak", "single,ddp", and "gpipe,1f1b"; each
// refuses what is empty, unknown or said twice. `flag`: for messages.
absl::StatusOr<std::vector<int64_t>> ParseWorldSizes(absl::string_view text);
absl::StatusOr<std::vector<Scaling>> ParseScalings(absl::string_view flag,
                                                   absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseTrainers(absl::string_view text);
absl::StatusOr<std::vector<std::string>> ParseSchedules(absl::string_view flag,
                                                        absl::string_view text);

// True for the trainers whose ranks hold parts of one model.
bool CutsTheModel(absl::string_view trainer);

// The schedules' own numbers of stages per rank.
int64_t ChunksPerRank(absl::string_view schedule);

// Layers that the trainers' model of that name can be cut at, where they do not
// depend on other flags; else 0.
int64_t LayersOfModel(absl::string_view model);

// Fails with a message that names the flag to change.
absl::Status CheckStudyConfig(const StudyConfig& config);

int64_t LargestWorldSize(const StudyConfig& config);

// Threads per rank of every run.
int64_t ThreadsPerRank(const StudyConfig& config);

// True where some cells' batch is not given, but follows from the memory limit.
bool SearchesMemory(const StudyConfig& config);

struct PlannedRun {
  std::string trainer;  // or "comm_bench"
  int64_t world_size = 1;
  // Examples: per rank and step; of model_parallel per step; of pipeline per
  // micro-batch.
  int64_t batch_size = 64;
  int64_t repetition = 1;     // from 1
  std::string schedule = "";  // of pipeline
  int64_t micro_batches = 1;  // of pipeline, per step
  bool skip_communication = false;

  // "ddp x2, batch 32 per rank", "pipeline 1f1b x2, 4 micro-batches of 16"
  std::string Name() const;
  // "ddp-x2-batch32", "pipeline-1f1b-x2-batch4x16", "ddp-x2-batch32-nocomm"
  std::string CellStem() const;
  // CellStem and the repetition, "ddp-x2-batch32-rep1"; "comm_bench-x2".
  std::string FileStem() const;
  bool IsTraining() const { return trainer != "comm_bench"; }
  // Examples a step of all ranks.
  int64_t GlobalBatch() const;
};

// One configuration: a run, whose repetition does not count, and how often.
struct PlannedCell {
  PlannedRun run;
  int64_t repetitions = 1;
};

struct StudyPlan {
  std::vector<PlannedCell> cells;  // by trainer, single first
  std::vector<PlannedRun> runs;
  // Under Scaling::kFixedMemory: their batch_size is to be searched.
  std::vector<PlannedRun> searched;
  // What the config asks for and no trainer can do, one line each with why.
  std::vector<std::string> not_run;
};

// Every repetition of every cell once, in an order shuffled by config.seed. A
// configuration that strong and weak scaling share is run for both at once, and
// so is one of `fixed_memory` (each with the batch that was found for it).
// In addition, config.ablations times each:
// - every cell above one rank without communication;
// - the base trainer on one rank with that cell's batch per rank, or, of a
//   pipeline, per micro-batch;
// and, where config.comm_bench says so, comm_bench once at every world size
// above one.
// Expects a config that CheckStudyConfig accepts.
StudyPlan PlanStudy(const StudyConfig& config,
                    absl::Span<const PlannedRun> fixed_memory = {});

// The command line of one run: all but the path of the binary itself.
std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_

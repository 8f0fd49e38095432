// The runs of a study, in order of execution, and their command lines.
#ifndef RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_
#define RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/study/study_config.h"

namespace rankwise {

struct PlannedRun {
  std::string trainer;  // or "comm_bench"
  int64_t world_size = 1;
  // Examples per rank and step; of model_parallel and tensor_parallel, per
  // step; of pipeline and hybrid, per micro-batch and dp coordinate.
  int64_t batch_size = 64;
  int64_t repetition = 1;     // from 1
  std::string schedule = "";  // for pipeline, and hybrid with stages
  int64_t micro_batches = 1;  // for pipeline and hybrid, per step
  bool skip_communication = false;
  Layout mesh = {};  // for hybrid
  int zero = 0;      // for fsdp
  // whether layers are timed after training (--profile), once per cell, in its
  // first repetition
  bool times_layers = false;

  // Returns "ddp x2, batch 32 per rank", "pipeline 1f1b x2, 4 micro-batches of
  // 16".
  std::string Name() const;
  // Returns "ddp-x2-batch32", "pipeline-1f1b-x2-batch4x16",
  // "ddp-x2-batch32-nocomm".
  std::string CellStem() const;
  // Returns CellStem and the repetition: "ddp-x2-batch32-rep1",
  // "comm_bench-x2-rep1".
  std::string FileStem() const;
  bool IsTraining() const { return trainer != "comm_bench"; }
  bool HasMicroBatches() const {
    return trainer == "pipeline" || trainer == "hybrid";
  }
  // Returns the trainer with its layout and schedule: "hybrid pp2xtp2 1f1b".
  std::string TrainerName(const char* separator = " ") const;
  // Returns the examples per step of all ranks.
  int64_t GlobalBatch() const;
  // Orders the base case first and comm_bench last; ignores repetitions.
  bool operator<(const PlannedRun& other) const;
};

struct StudyPlan {
  // Configuration -> number of repetitions (the key's `repetition` is ignored),
  // ordered by trainer, single first.
  std::map<PlannedRun, int64_t> cells;
  std::vector<PlannedRun> runs;
  // runs of Scaling::kFixedMemory, whose batch_size is to be searched
  std::vector<PlannedRun> searched;
  // requested configurations that no trainer supports, one line each with the
  // reason
  std::vector<std::string> not_run;
};

// Returns every repetition of every cell, in an order shuffled by config.seed.
// A configuration common to strong and weak scaling, or to `fixed_memory` (with
// the batches found), is run once for all of them. In addition,
// config.ablations times each:
// - every cell above one rank without communication, except those of
//   data_parallel, fsdp, tensor_parallel and hybrid, which require it;
// - the base trainer on one rank with that cell's batch per rank, or, of a
//   pipeline, per micro-batch;
// and, if config.comm_bench is set, comm_bench at every world size above one,
// min(3, config.repetitions) times: a single launch does not show how launches
// differ. Requires a config that CheckStudyConfig accepts.
StudyPlan PlanStudy(const StudyConfig& config,
                    absl::Span<const PlannedRun> fixed_memory = {});

// Returns the arguments of one run's binary.
std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path);

// Returns the whole command line: the launcher, if any, `binary` and its
// arguments.
std::vector<std::string> RunCommandLine(const StudyConfig& config,
                                        const PlannedRun& run,
                                        const std::string& binary,
                                        const std::string& record_path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_

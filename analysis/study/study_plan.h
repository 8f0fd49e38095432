// What a study runs: the runs in the order they are made, and their command
// lines.
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
  // Examples: per rank and step; of model_parallel and tensor_parallel per
  // step; of pipeline and hybrid per micro-batch (and dp coordinate).
  int64_t batch_size = 64;
  int64_t repetition = 1;     // from 1
  std::string schedule = "";  // of pipeline, and of hybrid with stages
  int64_t micro_batches = 1;  // of pipeline and hybrid, per step
  bool skip_communication = false;
  Layout mesh = {};  // of hybrid
  int zero = 0;      // of fsdp
  // After training (--profile); of a cell: its first repetition does.
  bool times_layers = false;

  // "ddp x2, batch 32 per rank", "pipeline 1f1b x2, 4 micro-batches of 16"
  std::string Name() const;
  // "ddp-x2-batch32", "pipeline-1f1b-x2-batch4x16", "ddp-x2-batch32-nocomm"
  std::string CellStem() const;
  // CellStem and the repetition: "ddp-x2-batch32-rep1", "comm_bench-x2-rep1".
  std::string FileStem() const;
  bool IsTraining() const { return trainer != "comm_bench"; }
  bool HasMicroBatches() const {
    return trainer == "pipeline" || trainer == "hybrid";
  }
  // The trainer with its layout and schedule: "hybrid pp2xtp2 1f1b".
  std::string TrainerName(const char* separator = " ") const;
  // Examples a step of all ranks.
  int64_t GlobalBatch() const;
  // The base case first, comm_bench last; repetitions compare equal.
  bool operator<(const PlannedRun& other) const;
};

struct StudyPlan {
  // Configuration -> number of its repetitions; the key's own `repetition` does
  // not count. By trainer, single first.
  std::map<PlannedRun, int64_t> cells;
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
// - every cell above one rank without communication, except those of
//   data_parallel, fsdp, tensor_parallel and hybrid, which cannot leave it out;
// - the base trainer on one rank with that cell's batch per rank, or, of a
//   pipeline, per micro-batch;
// and, if config.comm_bench is set, comm_bench at every world size above one,
// min(3, config.repetitions) times: costs fitted to a single launch do not show
// how launches differ. Requires a config that CheckStudyConfig accepts.
StudyPlan PlanStudy(const StudyConfig& config,
                    absl::Span<const PlannedRun> fixed_memory = {});

// The arguments of one run's binary.
std::vector<std::string> RunArguments(const StudyConfig& config,
                                      const PlannedRun& run,
                                      const std::string& record_path);

// The whole command line: the launcher, where there is one, `binary` and its
// arguments.
std::vector<std::string> RunCommandLine(const StudyConfig& config,
                                        const PlannedRun& run,
                                        const std::string& binary,
                                        const std::string& record_path);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_STUDY_PLAN_H_

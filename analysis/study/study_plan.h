// The runs of a study, in the order they are made.

#ifndef ANALYSIS_STUDY_STUDY_PLAN_H_
#define ANALYSIS_STUDY_STUDY_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/study/study_config.h"

namespace rankwise {

struct PlannedRun {
  std::string trainer;
  int64_t world_size = 1;
  // Examples: per rank and step; of model_parallel per step; of pipeline per
  // micro-batch.
  int64_t batch_size = 64;
  int64_t repetition = 1;     // from 1
  std::string schedule = "";  // of pipeline
  int64_t micro_batches = 1;  // of pipeline, per step

  // "ddp x2, batch 32 per rank", "pipeline 1f1b x2, 4 micro-batches of 16"
  std::string Name() const;
  // "ddp-x2-batch32-rep1", "pipeline-1f1b-x2-batch4x16-rep1"
  std::string FileStem() const;
};

struct StudyPlan {
  std::vector<PlannedRun> runs;
  // What the config asks for and no trainer can do, one line each with why.
  std::vector<std::string> not_run;
};

// Every repetition of every cell once, in an order shuffled by config.seed. A
// configuration that strong and weak scaling share is run for both at once.
// Expects a config that CheckStudyConfig accepts.
StudyPlan PlanStudy(const StudyConfig& config);

// The command line of one run: all but the path of the trainer itself.
std::vector<std::string> TrainerArguments(const StudyConfig& config,
                                          const PlannedRun& run,
                                          const std::string& record_path);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_PLAN_H_

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
  int64_t rank_batch = 64;  // examples per rank and step
  int64_t repetition = 1;   // from 1

  std::string Name() const;      // "ddp x2, batch 32 per rank"
  std::string FileStem() const;  // "ddp-x2-batch32-rep1"
};

// Every repetition of every cell once, in an order shuffled by config.seed. A
// configuration that strong and weak scaling share is run for both at once.
// Expects a config that CheckStudyConfig accepts.
std::vector<PlannedRun> PlanStudy(const StudyConfig& config);

// The command line of one run: all but the path of the trainer itself.
std::vector<std::string> TrainerArguments(const StudyConfig& config,
                                          const PlannedRun& run,
                                          const std::string& record_path);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_STUDY_PLAN_H_

// How long a study's runs will take, from earlier studies or roughly.

#ifndef ANALYSIS_STUDY_RUN_TIMES_H_
#define ANALYSIS_STUDY_RUN_TIMES_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "analysis/study/config_file.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_plan.h"

namespace rankwise {

struct RunTime {
  double seconds = 0;  // of one run, start-up included
  std::string source;  // "results/20260131-235959", or "rough"
};

class RunTimes {
 public:
  // Reads every study in `results_dir` and the one in `own_dir` that trained
  // the same model on the same data and machine as the one that `study`
  // describes. The latest says most; folders that are no studies are passed
  // over. `keys` are those of study.json.
  static RunTimes Load(const std::string& results_dir,
                       const std::string& own_dir, const ConfigFile& study,
                       absl::Span<const ConfigKey> keys);

  // The median of the cell's earlier runs, of other lengths in proportion to
  // the steps. Without any a rough guess: start-up of 0.5 s and 0.3 s per rank,
  // and the examples at one thread's speed on an EPYC core, which more threads
  // and, but for model_parallel, more ranks share at 60 % efficiency. Nothing
  // for a model whose speed is not known.
  std::optional<RunTime> Of(const StudyConfig& config,
                            const PlannedRun& run) const;

 private:
  struct Earlier {
    double seconds = 0;
    double steps = 0;
    std::string source;
  };
  void Read(const std::string& dir, const ConfigFile& study,
            absl::Span<const ConfigKey> keys);

  std::map<std::string, Earlier> by_cell_;  // PlannedRun::CellStem
};

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_RUN_TIMES_H_

// Where the trainers' binaries are, and what else the build brings.

#ifndef ANALYSIS_STUDY_TRAINER_PATH_H_
#define ANALYSIS_STUDY_TRAINER_PATH_H_

#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// The folder with the trainers' binaries, found from the path of the
// study's own binary: in its runfiles (`bazel run`, or started by hand from
// bazel-bin), else beside it in the tree of build outputs. Absolute.
absl::StatusOr<std::string> FindTrainerDir(const std::string& own_path);

// dir/trainer; fails unless it is an executable file.
absl::StatusOr<std::string> TrainerPath(const std::string& dir,
                                        const std::string& trainer);

// The communication benchmark beside the trainers: in their folder, or in the
// folder comm_bench next to theirs. The error says how to go without.
absl::StatusOr<std::string> CommBenchPath(const std::string& trainer_dir);

// plotly.min.js in the runfiles of the study's own binary. The error says how
// to go without.
absl::StatusOr<std::string> FindPlotly(const std::string& own_path);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_TRAINER_PATH_H_

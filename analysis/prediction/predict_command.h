// The command //analysis:predict, from the values of its flags to its text.
#ifndef RANKWISE_ANALYSIS_PREDICTION_PREDICT_COMMAND_H_
#define RANKWISE_ANALYSIS_PREDICTION_PREDICT_COMMAND_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// As typed on the command line.
struct PredictFlags {
  std::string records;
  std::string world_sizes = "8,64,1024";
  std::string link = "";
  int64_t fit_up_to = 0;
  std::string memory_limit = "";
  int64_t global_batch = 0;
  bool recommend = false;
  int64_t warmup_steps = 10;
};

// InvalidArgument, naming the flag, for values that cannot be;
// FailedPrecondition, with the command that would fix it, for records that are
// not there, cannot be read or do not suffice.
absl::StatusOr<std::string> RunPredict(const PredictFlags& flags);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_PREDICTION_PREDICT_COMMAND_H_

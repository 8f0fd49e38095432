// The first record of a run: binary, flags and environment.
#ifndef RANKWISE_PARALLEL_LAUNCH_RUN_RECORD_H_
#define RANKWISE_PARALLEL_LAUNCH_RUN_RECORD_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/comm/communicator.h"
#include "parallel/launch/rank_env.h"
#include "records/record.h"

namespace rankwise {

struct RunningRank {
  std::string binary;                        // "ddp"
  std::map<std::string, std::string> flags;  // of the binary, with values
  RankEnv env;
  std::vector<c10::Device> devices;
  int threads = 1;               // compute threads
  Communicator* comm = nullptr;  // nullptr without peers
};

// Collective if there is a communicator: all ranks use rank 0's run id.
absl::StatusOr<RunRecord> DescribeRun(const RunningRank& rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_RUN_RECORD_H_

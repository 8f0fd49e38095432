// Which device and which backend a rank gets.
#ifndef RANKWISE_PARALLEL_COMM_PLACEMENT_H_
#define RANKWISE_PARALLEL_COMM_PLACEMENT_H_

#include <string>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/comm/rank_env.h"

namespace rankwise {

// What this build and this machine offer.
struct Hardware {
  bool built_with_cuda = false;
  int gpus = 0;  // visible to this process
};
Hardware DetectHardware();

// `device`: auto (cuda if every local rank has a GPU of its own, else cpu),
// cpu, cuda (rank i takes cuda:LOCAL_RANK) or cuda:N, the only way for ranks to
// share a GPU. InvalidArgument says what is missing and what to ask for
// instead.
absl::StatusOr<c10::Device> ChooseDevice(const std::string& device,
                                         const RankEnv& env,
                                         const Hardware& hardware);

// `backend`: auto, gloo, nccl or fake; auto is nccl for a rank on a GPU that it
// shares with no other, else gloo.
absl::StatusOr<std::string> ChooseBackend(const std::string& backend,
                                          const std::string& requested_device,
                                          c10::Device device,
                                          const RankEnv& env,
                                          const Hardware& hardware);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_PLACEMENT_H_

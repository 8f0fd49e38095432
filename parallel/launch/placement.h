// Choice of each rank's device, and the host of each rank.
#ifndef RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_
#define RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {

// Capabilities of this build and this machine.
struct Hardware {
  bool built_with_cuda = false;
  int gpus = 0;  // visible to this process
  // If there are none: "no GPU is visible", "the CUDA driver says: ...".
  std::string why_no_gpu = "no GPU is visible";
};
Hardware DetectHardware();

// Returns the device of a rank. `device`: auto (cuda if every local rank has
// its own GPU, else cpu), cpu, cuda (rank i uses cuda:LOCAL_RANK) or cuda:N,
// which alone lets ranks share a GPU. InvalidArgument names the shortage,
// with both counts, and an alternative.
//
// If CUDA_VISIBLE_DEVICES shows a rank only one GPU, and the ranks were not all
// started by one --nproc with one environment, each rank is assumed to own that
// GPU, which is cuda:0 on all of them (srun --gpus-per-task=1). CheckGpuPlaces
// later detects sharing, when the ranks meet.
absl::StatusOr<c10::Device> ChooseDevice(const std::string& device,
                                         const RankEnv& env,
                                         const Hardware& hardware);

// Returns why a build with CUDA uses `device`, a CPU, although none was
// requested: "no GPU is used: 4 local ranks but 2 GPUs; the ranks compute on
// the CPU". Returns "" if the CPU was requested, or the build has no CUDA.
std::string WhyOnCpu(const std::string& requested_device, c10::Device device,
                     const RankEnv& env, const Hardware& hardware);

// Returns the error of ChooseDevice on any of `nproc` ranks, before they are
// started on this machine.
absl::Status CheckLaunch(const std::string& device, int nproc,
                         const Hardware& hardware);

// Returns a rank's device for CheckGpuPlaces: "host|cuda:0|GPU-...", with the
// GPU's UUID from the driver. The UUID is omitted on a CPU, and if the GPU is
// `shared` on purpose.
std::string GpuPlace(c10::Device device, bool shared);

// InvalidArgument if two ranks, of which `places` has one entry each, share a
// GPU; names the ranks, the GPU, and the fix.
absl::Status CheckGpuPlaces(const std::vector<std::string>& places);

// Returns a rank's place for HostsOf: "0|gpu07", its local rank and machine.
std::string HostPlace(const RankEnv& env);

// Returns the host of each rank from the places of all, numbered in the order
// of their first ranks. Ranks of one machine share a host, unless they have the
// same local rank, as those of different agents do: torchrun's "nodes".
std::vector<int> HostsOf(const std::vector<std::string>& places);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_

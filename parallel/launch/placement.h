// Which device a rank gets, and which host each rank is on.
#ifndef RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_
#define RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {

// What this build and this machine offer.
struct Hardware {
  bool built_with_cuda = false;
  int gpus = 0;  // visible to this process
  // Where there are none: "no GPU is visible", "the CUDA driver says: ...".
  std::string why_no_gpu = "no GPU is visible";
};
Hardware DetectHardware();

// `device`: auto (cuda if every local rank has a GPU of its own, else cpu),
// cpu, cuda (rank i takes cuda:LOCAL_RANK) or cuda:N, the only way for ranks to
// share a GPU. InvalidArgument says what is missing, with both counts, and what
// to ask for instead.
//
// Where CUDA_VISIBLE_DEVICES shows a rank one GPU only, and the ranks were not
// all started by one --nproc with one environment, that GPU is taken for the
// rank's own: it is cuda:0 for each (srun --gpus-per-task=1). Whether it is
// shared shows when the ranks meet: see CheckGpuPlaces.
absl::StatusOr<c10::Device> ChooseDevice(const std::string& device,
                                         const RankEnv& env,
                                         const Hardware& hardware);

// Why a build with CUDA computes on `device`, a CPU, although none was
// requested: "no GPU is used: 4 local ranks but 2 GPUs; the ranks compute on
// the CPU".
// "" where that is as requested, or the build has no CUDA.
std::string WhyOnCpu(const std::string& requested_device, c10::Device device,
                     const RankEnv& env, const Hardware& hardware);

// Before `nproc` ranks are started on this machine: what ChooseDevice would
// refuse in each of them.
absl::Status CheckLaunch(const std::string& device, int nproc,
                         const Hardware& hardware);

// What a rank computes on, for CheckGpuPlaces: "host|cuda:0|GPU-...", the last
// being the GPU's UUID as the driver tells it. Without it on a CPU, and where
// the GPU is `shared` knowingly.
std::string GpuPlace(c10::Device device, bool shared);

// InvalidArgument names two of the ranks, whose places these are, that share a
// GPU, the GPU, and what to do.
absl::Status CheckGpuPlaces(const std::vector<std::string>& places);

// Where a rank is, for HostsOf: "0|gpu07", its local rank and its machine.
std::string HostPlace(const RankEnv& env);

// The host of each rank, by the places of all, numbered in the order of their
// first ranks. Ranks of one machine are on one host, but for those that have
// the same local rank, which different agents started: torchrun's "nodes".
std::vector<int> HostsOf(const std::vector<std::string>& places);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_PLACEMENT_H_

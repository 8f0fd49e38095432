#include "parallel/launch/placement.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/network.h"
#include "records/text.h"

namespace rankwise {
namespace {

absl::Status NoGpu(const std::string& device, const Hardware& hardware) {
  if (!hardware.built_with_cuda) {
    return absl::InvalidArgumentError(
        absl::StrCat("device=", device,
                     ": this binary was built without CUDA; build it with "
                     "--config=cuda, or use device=cpu"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "device=", device, ": ", hardware.why_no_gpu,
      " (see nvidia-smi and CUDA_VISIBLE_DEVICES); use device=cpu"));
}

bool SeesItsOwnGpuOnly(const RankEnv& env, const Hardware& hardware) {
  return hardware.gpus == 1 && env.local_world_size > 1 &&
         env.launcher != "nproc" && !env.visible_gpus.empty();
}

std::string TooFew(const RankEnv& env, const Hardware& hardware) {
  return absl::StrCat(env.local_world_size, " local ranks but ",
                      Counted(hardware.gpus, "GPU"));
}

absl::StatusOr<c10::Device> OwnGpu(const RankEnv& env,
                                   const Hardware& hardware) {
  if (hardware.gpus == 0) return NoGpu("cuda", hardware);
  if (SeesItsOwnGpuOnly(env, hardware)) return c10::Device(c10::kCUDA, 0);
  if (env.local_world_size > hardware.gpus) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device=cuda: ", TooFew(env, hardware),
        "; start fewer ranks, or share a GPU by name with device=cuda:0"));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(env.local_rank));
}

absl::StatusOr<c10::Device> NamedGpu(const std::string& device,
                                     const Hardware& hardware) {
  int index = 0;
  if (!absl::SimpleAtoi(absl::string_view(device).substr(5), &index) ||
      index < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device=", device, ": expected a number after 'cuda:'"));
  }
  if (hardware.gpus == 0) return NoGpu(device, hardware);
  if (index >= hardware.gpus) {
    return absl::InvalidArgumentError(
        absl::StrCat("device=", device,
                     ": this machine has cuda:0 to cuda:", hardware.gpus - 1));
  }
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

}  // namespace

Hardware DetectHardware() {
  Hardware hardware;
  hardware.built_with_cuda = ThisBuild().has_cuda;
  hardware.gpus = VisibleGpus();
  hardware.why_no_gpu = WhyNoGpu();
  return hardware;
}

absl::StatusOr<c10::Device> ChooseDevice(const std::string& device,
                                         const RankEnv& env,
                                         const Hardware& hardware) {
  if (device == "cpu") return c10::Device(c10::kCPU);
  if (device == "cuda") return OwnGpu(env, hardware);
  if (absl::StartsWith(device, "cuda:")) return NamedGpu(device, hardware);
  if (device != "auto") {
    return absl::InvalidArgumentError(absl::StrCat(
        "device='", device, "' is unknown; use auto, cpu, cuda or cuda:N"));
  }
  if (hardware.gpus < env.local_world_size &&
      !SeesItsOwnGpuOnly(env, hardware)) {
    return c10::Device(c10::kCPU);
  }
  return OwnGpu(env, hardware);
}

std::string WhyOnCpu(const std::string& requested_device, c10::Device device,
                     const RankEnv& env, const Hardware& hardware) {
  if (!hardware.built_with_cuda || requested_device != "auto" ||
      device.is_cuda()) {
    return "";
  }
  const bool one = env.world_size == 1;
  return absl::StrCat(
      "no GPU is used: ",
      hardware.gpus == 0 ? hardware.why_no_gpu : TooFew(env, hardware),
      one ? "; computing on the CPU" : "; the ranks compute on the CPU");
}

absl::Status CheckLaunch(const std::string& device, int nproc,
                         const Hardware& hardware) {
  RankEnv env;
  env.world_size = env.local_world_size = nproc;
  env.launcher = "nproc";
  return ChooseDevice(device, env, hardware).status();
}

std::string GpuPlace(c10::Device device, bool shared) {
  std::string uuid;
  if (device.is_cuda() && !shared) {
    const absl::StatusOr<GpuFacts> facts = DescribeGpu(device.index());
    if (facts.ok()) uuid = facts->uuid;
  }
  return absl::StrCat(HostName(), "|", device.str(), "|", uuid);
}

absl::Status CheckGpuPlaces(const std::vector<std::string>& places) {
  std::map<std::string, std::string> owners;  // by UUID
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const std::vector<std::string> fields = absl::StrSplit(places[rank], '|');
    if (fields.size() != 3 || fields[2].empty()) continue;
    const std::string name =
        absl::StrCat("rank ", rank, " (", fields[1], " on ", fields[0], ")");
    const auto [owner, is_first] = owners.emplace(fields[2], name);
    if (is_first) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        owner->second, " and ", name, " are on one GPU, ", fields[2],
        "; start fewer ranks, let each rank see its own GPU "
        "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task=1), or share it by name "
        "with device=",
        fields[1]));
  }
  return absl::OkStatus();
}

std::string HostPlace(const RankEnv& env) {
  return absl::StrCat(env.local_rank, "|", HostName());
}

std::vector<int> HostsOf(const std::vector<std::string>& places) {
  std::map<std::string, int> alike;  // number of ranks so far per place
  std::map<std::pair<std::string, int>, int> numbers;  // by machine and agent
  std::vector<int> hosts;
  for (const std::string& place : places) {
    const std::string machine = place.substr(place.find('|') + 1);
    const int agent = alike[place]++;
    const int next = static_cast<int>(numbers.size());
    hosts.push_back(numbers.try_emplace({machine, agent}, next).first->second);
  }
  return hosts;
}

}  // namespace rankwise

#include "trainers/data_parallel_flags.h"

#include <cstdint>
#include <iterator>
#include <set>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "trainers/flag_rules.h"
#include "trainers/layout_flags.h"

TRAINER_FLAG(
    kLayout, int, replicas, 0,
    "replicas of the model, among which each batch is divided: on the first "
    "GPUs, or, with --device=cpu or too few GPUs, on slots of the CPU; "
    "if 0, one per GPU, or 2 slots");
TRAINER_FLAG(kSpeed, std::string, gather, "output",
             "what the replicas send to the first device: output, from which "
             "it computes the loss, as torch.nn.DataParallel does; or "
             "loss, computed by each replica for its own examples");
TRAINER_FLAG(
    kSpeed, std::string, replicate, "step",
    "when the replicas are made: step, at every step, as in "
    "torch.nn.DataParallel; or once: replicas on one device then share its "
    "weights, and on the CPU all threads sum gradients");

ABSL_DECLARE_FLAG(int64_t, accumulate);
ABSL_DECLARE_FLAG(int64_t, batch_size);
ABSL_DECLARE_FLAG(std::string, device);
ABSL_DECLARE_FLAG(double, dropout);
ABSL_DECLARE_FLAG(int64_t, global_batch_size);

namespace rankwise {
namespace {

constexpr int kReplicasOnCpu = 2;

absl::Status CheckReplicas(const std::vector<c10::Device>& devices) {
  const int64_t replicas = std::ssize(devices);
  FlagChecks checks;
  const int64_t global = absl::GetFlag(FLAGS_global_batch_size);
  const int64_t batch = global > 0 ? global / absl::GetFlag(FLAGS_accumulate)
                                   : absl::GetFlag(FLAGS_batch_size);
  if (batch < replicas) {
    checks.Complain(absl::StrCat(
        global > 0 ? "--global_batch_size=" : "--batch_size=",
        global > 0 ? global : batch, ": the ", replicas,
        " replicas share out each batch and need an example each"));
  }
  const std::set<std::string> different = [&] {
    std::set<std::string> names;
    for (const c10::Device& device : devices) names.insert(device.str());
    return names;
  }();
  if (absl::GetFlag(FLAGS_dropout) > 0 && different.size() < devices.size()) {
    checks.Complain(absl::StrCat(
        "--dropout=", absl::GetFlag(FLAGS_dropout),
        ": replicas on one device share its random generator, and their masks "
        "would depend on which draws first; give each a GPU "
        "(--devices=cuda:0,cuda:1), or use the trainer ddp"));
  }
  return checks.status();
}

}  // namespace

absl::Status CheckDataParallelFlags(const TrainConfig&) {
  ASSIGN_OR_RETURN(const std::vector<c10::Device> devices,
                   ReplicaDevicesFromFlags());
  return CheckReplicas(devices);
}

absl::StatusOr<std::vector<c10::Device>> ReplicaDevicesFromFlags() {
  if (DevicesGiven()) return DevicesFromFlags();
  const std::string device = absl::GetFlag(FLAGS_device);
  if (absl::StartsWith(device, "cuda:")) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device,
                     ": is one device; --devices names those of all replicas"));
  }
  const int gpus = device == "cpu" ? 0 : VisibleGpus();
  int replicas = absl::GetFlag(FLAGS_replicas);
  if (replicas == 0) replicas = gpus > 0 ? gpus : kReplicasOnCpu;
  if (replicas > gpus && device == "cuda") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--device=cuda: ", replicas, " replicas, and ", Counted(gpus, "GPU"),
        " can be used here; use fewer --replicas, --device=cpu, or let "
        "replicas share a GPU by --devices=cuda:0,cuda:0"));
  }
  std::vector<c10::Device> devices;
  for (int i = 0; i < replicas; ++i) {
    devices.push_back(
        replicas > gpus
            ? c10::Device(c10::kCPU)
            : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(i)));
  }
  return devices;
}

bool GathersLossesByFlag() { return absl::GetFlag(FLAGS_gather) == "loss"; }

bool KeepsCopiesByFlag() { return absl::GetFlag(FLAGS_replicate) == "once"; }

}  // namespace rankwise

#include "parallel/comm/communicator_parts.h"

#include <functional>
#include <numeric>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "parallel/comm/gpu_places.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/comm/run_within.h"
#include "parallel/comm/stuck_collective.h"
#include "torch/csrc/distributed/c10d/FlightRecorder.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

// The fake backend carries CPU tensors only.
absl::Status Communicator::Parts::Place() {
  requested_device = config.backend == "fake" && config.device == "auto"
                         ? "cpu"
                         : config.device;
  absl::StatusOr<c10::Device> chosen =
      ChooseDevice(requested_device, env, hardware);
  if (!chosen.ok()) return chosen.status();
  absl::StatusOr<std::string> name =
      ChooseBackend(config.backend, requested_device, *chosen, env, hardware);
  if (!name.ok()) return name.status();
  device = *chosen;
  backend = *name;
  why_on_cpu = WhyOnCpu(requested_device, device, env, hardware);
  return absl::OkStatus();
}

absl::Status Communicator::Parts::Meet() {
  if (backend == "fake") {  // nobody is met
    connection.store = c10::make_intrusive<c10d::HashStore>();
    return absl::OkStatus();
  }
  RendezvousConfig rendezvous;
  rendezvous.timeout = config.rendezvous_timeout;
  rendezvous.file_store = config.file_store;
  absl::StatusOr<StoreConnection> met = Rendezvous(env, rendezvous);
  if (!met.ok()) return met.status();
  connection = *std::move(met);
  return absl::OkStatus();
}

// Ranks that each took the one GPU they see for their own find out here when
// they were wrong: who has not asked for GPUs then does without.
absl::Status Communicator::Parts::CheckGpus() {
  if (!hardware.built_with_cuda || env.world_size == 1 || backend == "fake") {
    return absl::OkStatus();
  }
  GpuPlace own = PlaceOf(env.rank, device);
  if (absl::StartsWith(requested_device, "cuda:")) own.uuid.clear();
  const absl::Status alone =
      CheckGpusOfAllRanks(*connection.store, own, env.world_size);
  const bool may_do_without =
      requested_device == "auto" && config.backend != "nccl";
  if (alone.ok() || !may_do_without) return alone;
  hardware.gpus = 0;
  hardware.why_no_gpu = std::string(alone.message());
  return Place();
}

// What all ranks must be configured with alike to connect. Rank 0 compares, and
// tells all.
absl::Status Communicator::Parts::Agree() {
  if (env.world_size == 1 || backend == "fake") return absl::OkStatus();
  c10d::Store& store = *connection.store;
  const auto key = [](int rank) { return absl::StrCat("settings/", rank); };
  const std::string own =
      absl::StrCat("backend ", backend, ", direct_all_reduce_bytes ",
                   config.direct_all_reduce_bytes, ", check_collectives ",
                   config.check_collectives ? "on" : "off");
  store.set(key(env.rank), own);
  if (env.rank == 0) {
    std::string verdict = "agreed";
    for (int rank = 1; rank < env.world_size && verdict == "agreed"; ++rank) {
      const std::string other = store.get_to_str(key(rank));
      if (other == own) continue;
      verdict = absl::StrCat("ranks disagree: rank ", rank, " has ", other,
                             ", but rank 0 ", own,
                             "; give every rank the same flags");
    }
    store.set("settings/verdict", verdict);
  }
  const std::string verdict = store.get_to_str("settings/verdict");
  return verdict == "agreed" ? absl::OkStatus()
                             : absl::InvalidArgumentError(verdict);
}

absl::Status Communicator::Parts::Connect() {
  ProcessGroupsConfig groups_config;
  groups_config.env = env;
  groups_config.backend = backend;
  groups_config.device = device;
  groups_config.connect_timeout = config.rendezvous_timeout;
  groups_config.collective_timeout = config.collective_timeout;
  groups_config.check_collectives = config.check_collectives;
  groups_config.direct_all_reduce_bytes = config.direct_all_reduce_bytes;
  groups_config.nccl_high_priority_stream = config.nccl_high_priority_stream;
  if (IsAsked()) Watch();
  groups_config.watch = watch;
  groups_config.watch_gloo = backend == "gloo" && config.ask_gloo;
  groups_config.fake = config.fake;
  groups = std::make_shared<ProcessGroups>(std::move(groups_config),
                                           connection.store, log);
  GroupPlace everybody;
  everybody.rank = env.rank;
  everybody.ranks.resize(env.world_size);
  std::iota(everybody.ranks.begin(), everybody.ranks.end(), 0);
  absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> group =
      groups->Add(everybody);
  if (!group.ok()) return group.status();
  process_group = *std::move(group);
  if (env.world_size > 1 && backend != "fake") {
    heartbeat =
        std::make_unique<Heartbeat>(connection.second_store, env.rank, log);
  }
  return absl::OkStatus();
}

// Before the groups, which hand it their works. The heartbeat begins after
// them; nothing is in flight before.
void Communicator::Parts::Watch() {
  StuckCollectiveConfig stuck_config;
  stuck_config.rank = env.rank;
  stuck_config.world_size = env.world_size;
  stuck_config.collective_timeout = config.collective_timeout;
  stuck_config.log = log;
  stuck_config.store = connection.second_store;
  stuck_config.heartbeat = [this] { return heartbeat.get(); };
  const bool on_gpu = device.is_cuda();
  stuck_config.dump_recorder = [on_gpu] {
    return on_gpu ? DumpNcclRecorder()
                  : c10d::dump_fr_trace_json(/*includeCollectives=*/true,
                                             /*onlyActive=*/false);
  };
  stuck_config.abort = [this] { groups->Abort(); };
  // Shared with the watch's thread, which looks around for as long as it lives;
  // what refers to these parts is called in GiveUp only, which StandDown rules
  // out.
  auto stuck = std::make_shared<StuckCollective>(std::move(stuck_config));
  CollectiveWatchConfig watch_config;
  watch_config.timeout = config.collective_timeout;
  watch_config.around_questions =
      [gpu = device](const std::function<void()>& ask) {
        BesideCaptures(gpu, ask);
      };
  watch_config.look_around = [stuck](absl::Duration oldest) {
    return stuck->LookAround(oldest);
  };
  watch_config.give_up = [stuck](const Trouble& why) { stuck->GiveUp(why); };
  watch = std::make_shared<CollectiveWatch>(std::move(watch_config), log);
}

// NCCL's abort may hang with the GPU.
void Communicator::Parts::Abort() {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  if (watch == nullptr) return groups->Abort();
  RunWithin(kPatience, [aborted = groups] { aborted->Abort(); });
}

// A GPU may be some steps behind the host.
void Communicator::Parts::EndWatch() {
  constexpr absl::Duration kForTheGpu = absl::Seconds(10);
  if (watch == nullptr) return;
  if (!failed) watch->Drain(kForTheGpu);
  StandDown();
}

void Communicator::Parts::StandDown() {
  if (watch == nullptr || watch->StandDown()) return;
  absl::SleepFor(absl::InfiniteDuration());
}

}  // namespace rankwise

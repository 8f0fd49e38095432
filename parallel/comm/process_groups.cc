#include "parallel/comm/process_groups.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp"

namespace rankwise {

// Wraps `inner` in a check that all ranks call the same collective.
absl::StatusOr<BackendPtr> ProcessGroups::Checked(BackendRequest request,
                                                  BackendPtr inner) {
  request.store =
      c10::make_intrusive<c10d::PrefixStore>("check", request.store);
  request.collective_timeout = config_.comm.collective_timeout;
  ASSIGN_OR_RETURN(BackendPtr checker, HostBackend().make(request));
  carriers_.emplace_back(&HostBackend(), checker);
  return c10::make_intrusive<c10d::ProcessGroupWrapper>(std::move(inner),
                                                        std::move(checker));
}

absl::StatusOr<BackendPtr> ProcessGroups::Make(const BackendKind& kind,
                                               const GroupPlace& place,
                                               int number) {
  // The watchdog acts first; the backend's own timeout is a fallback.
  constexpr absl::Duration kForTheWatchdog = absl::Minutes(2);
  const bool polled = kind.on_device || config_.comm.poll_gloo;
  BackendRequest request;
  request.env = config_.env;
  request.place = place;
  request.device = config_.device;
  // Unique to this group: groups created at the same time share no rank.
  request.store = c10::make_intrusive<c10d::PrefixStore>(
      number == 0
          ? kind.name
          : absl::StrCat("group/", number, "/", place.ranks[0], "/", kind.name),
      config_.store);
  request.connect_timeout = config_.comm.rendezvous_timeout;
  request.collective_timeout =
      config_.comm.collective_timeout +
      (polled ? kForTheWatchdog : absl::ZeroDuration());
  request.fake = config_.comm.fake;
  const auto of_all_ranks =
      std::find_if(carriers_.begin(), carriers_.end(),
                   [&](const auto& each) { return each.first == &kind; });
  if (of_all_ranks != carriers_.end()) request.parent = of_all_ranks->second;
  ASSIGN_OR_RETURN(BackendPtr backend, kind.make(request));
  carriers_.emplace_back(&kind, backend);
  if (config_.comm.check_collectives && !kind.simulates_peers) {
    ASSIGN_OR_RETURN(backend, Checked(request, std::move(backend)));
  }
  Monitoring monitoring;
  monitoring.group = number;
  if (polled) monitoring.watchdog = config_.watchdog;
  if (kind.on_device) monitoring.device = config_.device;
  return MakeMonitoredBackend(std::move(backend), config_.log,
                              std::move(monitoring));
}

absl::StatusOr<ProcessGroups::GroupPtr> ProcessGroups::Add(
    const GroupPlace& place) {
  const int number =
      groups_.empty() ? 0 : config_.log->AddGroup(place.name, place.ranks);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(
      config_.store, place.rank, place.size());
  const BackendKind& kind = *config_.backend;
  // NCCL cannot reduce CPU tensors, such as a loss to print.
  const BackendKind& host = kind.serves_cpu ? kind : HostBackend();
  ASSIGN_OR_RETURN(const BackendPtr for_cpu, Make(host, place, number));
  group->setBackend(c10::kCPU, host.type, for_cpu);
  group->setDefaultBackend(host.type);
  if (config_.device.is_cuda() && !kind.serves_cpu) {
    group->setBoundDeviceId(config_.device);
    ASSIGN_OR_RETURN(const BackendPtr for_gpu, Make(kind, place, number));
    group->setBackend(c10::kCUDA, kind.type, for_gpu);
    group->setDefaultBackend(kind.type);
  } else if (config_.device.is_cuda() && kind.serves_cuda) {
    group->setBackend(c10::kCUDA, kind.type, for_cpu);
  }
  groups_.push_back(group);
  return group;
}

void ProcessGroups::Abort() {
  for (const auto& [kind, carrier] : carriers_) carrier->abort();
}

void ProcessGroups::ShutDown() {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  // The backends stay alive meanwhile: shutdown has returned, or they leak.
  std::vector<c10d::Backend*> backends;
  for (const auto& [kind, carrier] : carriers_) {
    if (kind->on_device) backends.push_back(carrier.get());
  }
  const auto is_down = std::make_shared<bool>(false);
  const bool returned = RunWithin(kPatience, [backends, is_down] {
    for (auto each = backends.rbegin(); each != backends.rend(); ++each) {
      (*each)->shutdown();
    }
    *is_down = true;
  });
  if (!returned) {
    fprintf(stderr,
            "rank %d: NCCL has not closed its connections within %s; a CUDA "
            "graph that holds collectives must be destroyed before the "
            "communicator\n",
            config_.env.rank, absl::FormatDuration(kPatience).c_str());
  }
  // If it returned but is not down, the GPU has failed, and the groups'
  // destructors would fail, too.
  if (!returned || !*is_down) Leak();
}

void ProcessGroups::Leak() {
  for (GroupPtr& group : groups_) (void)group.release();
  for (auto& [kind, carrier] : carriers_) (void)carrier.release();
  groups_.clear();
  carriers_.clear();
}

}  // namespace rankwise

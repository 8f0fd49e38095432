#include "parallel/comm/process_groups.h"

#include <cstdio>
#include <exception>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "parallel/comm/monitored_backend.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/comm/run_within.h"
#include "torch/csrc/distributed/c10d/PrefixStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using BackendPtr = c10::intrusive_ptr<c10d::Backend>;
using BackendType = c10d::ProcessGroup::BackendType;

// The costs as a group sees them, whose ranks are numbered anew.
FakeBackendConfig FakeCostsOf(const FakeBackendConfig& job,
                              const std::vector<int>& ranks) {
  FakeBackendConfig config = job;
  config.skew_us.clear();
  config.straggler_rank = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t rank = static_cast<size_t>(ranks[i]);
    config.skew_us.push_back(rank < job.skew_us.size() ? job.skew_us[rank] : 0);
    if (ranks[i] == job.straggler_rank) {
      config.straggler_rank = static_cast<int>(i);
    }
  }
  return config;
}

}  // namespace

// A group to which backends are being added.
struct ProcessGroups::Building {
  GroupPlace place;
  int number = 0;  // in the log
  GroupPtr group;

  // A part of `store` for this group's `backend` alone. Groups that are made at
  // the same time have no rank in common.
  c10::intrusive_ptr<c10d::Store> StorePart(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::string& backend) const {
    const std::string prefix =
        number == 0 ? ""
                    : absl::StrCat("group/", number, "/", place.ranks[0], "/");
    return c10::make_intrusive<c10d::PrefixStore>(prefix + backend, store);
  }

  void Add(c10::DeviceType device_type, BackendType type, BackendPtr backend) {
    group->setBackend(device_type, type, std::move(backend));
    group->setDefaultBackend(type);
  }
};

ProcessGroups::ProcessGroups(ProcessGroupsConfig config,
                             c10::intrusive_ptr<c10d::Store> store,
                             std::shared_ptr<CollectiveLog> log)
    : config_(std::move(config)),
      store_(std::move(store)),
      log_(std::move(log)) {}

// `inner`, behind the check if the configuration asks for it.
absl::StatusOr<BackendPtr> ProcessGroups::Checked(const Building& building,
                                                  BackendPtr inner) {
  carriers_.push_back(inner);
  if (!config_.check_collectives) return inner;
  absl::StatusOr<BackendPtr> checker =
      MakeGloo(config_.env, building.place,
               building.StorePart(
                   store_, absl::StrCat("check/", inner->getBackendName())),
               config_.collective_timeout);
  if (!checker.ok()) return checker.status();
  carriers_.push_back(*checker);
  return CheckCollectives(std::move(inner), *std::move(checker));
}

// Where the watch speaks first, the carrier's own timeout is but a fallback.
absl::Duration ProcessGroups::CarrierTimeout(bool watched) const {
  constexpr absl::Duration kForTheWatch = absl::Minutes(2);
  return watched ? config_.collective_timeout + kForTheWatch
                 : config_.collective_timeout;
}

absl::Status ProcessGroups::AddGloo(Building& building) {
  const bool watched = config_.watch_gloo;
  absl::StatusOr<BackendPtr> gloo =
      MakeGloo(config_.env, building.place, building.StorePart(store_, "gloo"),
               CarrierTimeout(watched), config_.direct_all_reduce_bytes);
  if (gloo.ok()) gloo = Checked(building, *std::move(gloo));
  if (!gloo.ok()) return gloo.status();
  building.Add(c10::kCPU, BackendType::GLOO,
               MakeMonitoredBackend(
                   *std::move(gloo), log_,
                   watched ? WatchCompletion::kAsked : WatchCompletion::kYes,
                   building.number, {config_.watch, c10::kCPU}));
  if (config_.device.is_cuda() && config_.backend == "gloo") {
    building.group->setBackend(c10::kCUDA, BackendType::GLOO,
                               building.group->getBackend(c10::kCPU));
  }
  return absl::OkStatus();
}

absl::Status ProcessGroups::AddNccl(Building& building) {
  NcclConfig nccl_config;
  nccl_config.device = config_.device;
  nccl_config.connect_timeout = config_.connect_timeout;
  nccl_config.watchdog_timeout = CarrierTimeout(/*watched=*/true);
  nccl_config.high_priority_stream = config_.nccl_high_priority_stream;
  building.group->setBoundDeviceId(config_.device);
  absl::StatusOr<BackendPtr> nccl =
      MakeNccl(config_.env, building.place, building.StorePart(store_, "nccl"),
               nccl_config, first_nccl_);
  if (!nccl.ok()) return nccl.status();
  if (first_nccl_ == nullptr) first_nccl_ = *nccl;
  nccl = Checked(building, *std::move(nccl));
  if (!nccl.ok()) return nccl.status();
  building.Add(
      c10::kCUDA, BackendType::NCCL,
      MakeMonitoredBackend(*std::move(nccl), log_, WatchCompletion::kAsked,
                           building.number, {config_.watch, config_.device}));
  return absl::OkStatus();
}

void ProcessGroups::AddFake(Building& building) {
  const GroupPlace& place = building.place;
  building.Add(c10::kCPU, BackendType::CUSTOM,
               MakeMonitoredBackend(
                   MakeFakeBackend(place.rank, place.size(),
                                   FakeCostsOf(config_.fake, place.ranks)),
                   log_, WatchCompletion::kYes, building.number));
}

absl::StatusOr<ProcessGroups::GroupPtr> ProcessGroups::Add(
    const GroupPlace& place) {
  Building building;
  building.place = place;
  building.number =
      groups_.empty() ? 0 : log_->AddGroup(place.name, place.ranks);
  building.group =
      c10::make_intrusive<c10d::ProcessGroup>(store_, place.rank, place.size());
  if (config_.backend == "fake") {
    AddFake(building);
  } else {
    // Under NCCL too: CPU tensors, such as a loss to print, go through Gloo.
    absl::Status status = AddGloo(building);
    if (status.ok() && config_.backend == "nccl") status = AddNccl(building);
    if (!status.ok()) return status;
  }
  groups_.push_back(building.group);
  return building.group;
}

void ProcessGroups::Abort() {
  for (const BackendPtr& carrier : carriers_) carrier->abort();
}

void ProcessGroups::ShutDown() {
  constexpr absl::Duration kPatience = absl::Seconds(30);
  // Alive while they are shut down: either that has returned, or they leak.
  std::vector<c10d::Backend*> nccl;
  for (const BackendPtr& carrier : carriers_) {
    if (carrier->getBackendName() == "nccl") nccl.push_back(carrier.get());
  }
  const auto is_down = std::make_shared<bool>(false);
  const bool returned = RunWithin(kPatience, [nccl, is_down] {
    for (auto group = nccl.rbegin(); group != nccl.rend(); ++group) {
      (*group)->shutdown();
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
  // Not down although it returned: a GPU that has failed, on which the groups'
  // destructors would fail, too.
  if (!returned || !*is_down) Leak();
}

void ProcessGroups::Leak() {
  for (GroupPtr& group : groups_) (void)group.release();
  for (BackendPtr& carrier : carriers_) (void)carrier.release();
  (void)first_nccl_.release();
  groups_.clear();
  carriers_.clear();
}

}  // namespace rankwise

#include "parallel/comm/communicator.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/decide_together.h"
#include "parallel/comm/diagnosis/peers.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/comm/diagnosis/watchdog.h"
#include "parallel/comm/process_groups.h"
#include "parallel/comm/rendezvous.h"
#include "parallel/launch/network.h"
#include "parallel/launch/placement.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/FlightRecorder.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

namespace {

// Waits up to 100 ms for `done`, since the log may lag behind waiting threads.
// Returns done().
template <typename Done>
bool AwaitLog(Done done) {
  const Deadline deadline(absl::Milliseconds(100));
  while (!done() && !deadline.passed()) absl::SleepFor(absl::Milliseconds(1));
  return done();
}

bool IsStuck(const CollectiveLog& log) {
  return !AwaitLog([&] { return log.in_flight() == 0; });
}

c10d::ReduceOp ToC10d(ReduceOp op) {
  if (op == ReduceOp::kMin) return c10d::ReduceOp::MIN;
  if (op == ReduceOp::kMax) return c10d::ReduceOp::MAX;
  if (op == ReduceOp::kProduct) return c10d::ReduceOp::PRODUCT;
  return c10d::ReduceOp::SUM;  // not every backend averages: sum, then divide
}

std::vector<int> AllRanks(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

absl::Status CheckTensor(const char* what, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": the tensor must be defined and contiguous; call contiguous()"));
}

}  // namespace

struct Communicator::Parts {
  // Leaked groups keep the watchdog's thread alive, which must not call back
  // here after this.
  ~Parts() { StandDown(); }

  RankEnv env;
  CommConfig config;
  const BackendKind* backend = nullptr;
  c10::Device device = c10::kCPU;
  std::string requested_device;
  Hardware hardware;
  std::string why_on_cpu;
  StoreConnection connection;
  std::vector<int> hosts;
  std::shared_ptr<CollectiveLog> log = std::make_shared<CollectiveLog>();
  std::unique_ptr<Heartbeat> heartbeat;  // nullptr without peers
  std::shared_ptr<ProcessGroups> groups;
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;  // of all ranks
  std::shared_ptr<Watchdog> watchdog;  // nullptr if backends report completion
  bool failed = false;

  bool has_peers() const {
    return env.world_size > 1 && !backend->simulates_peers;
  }
  absl::Status Place();
  absl::Status Meet();
  absl::Status CheckGpus();
  absl::Status CheckSettings();
  absl::Status AgreeOnHosts();
  absl::Status Connect();
  void StartWatchdog();
  // Waits briefly for collectives in flight, and stops the watchdog.
  void EndWatchdog();
  // Claims the report of a failure for the calling thread. Does not return if
  // the watchdog already reports it: that ends the process.
  void StandDown();
  void Abort();
};

absl::Status Communicator::Parts::Place() {
  // A backend that carries CPU tensors only computes there by default.
  const BackendKind* const named = FindBackend(config.backend);
  const bool cpu_only = named != nullptr && !named->serves_cuda;
  requested_device =
      cpu_only && config.device == "auto" ? "cpu" : config.device;
  ASSIGN_OR_RETURN(device, ChooseDevice(requested_device, env, hardware));
  ASSIGN_OR_RETURN(
      const std::string name,
      ChooseBackend(config.backend, requested_device, device, env, hardware));
  backend = FindBackend(name);
  why_on_cpu = WhyOnCpu(requested_device, device, env, hardware);
  return absl::OkStatus();
}

absl::Status Communicator::Parts::Meet() {
  if (backend->simulates_peers) {
    connection.store = c10::make_intrusive<c10d::HashStore>();
  } else {
    // The store may be silent as long as a collective may take.
    ASSIGN_OR_RETURN(connection,
                     Rendezvous(env, {.timeout = config.rendezvous_timeout,
                                      .file_store = config.file_store,
                                      .silence = config.collective_timeout}));
  }
  return absl::OkStatus();
}

// Detects ranks that share a GPU because each took the only one it sees for its
// own; with --device=auto they fall back to the CPU.
absl::Status Communicator::Parts::CheckGpus() {
  if (!hardware.built_with_cuda || !has_peers()) return absl::OkStatus();
  const bool shared = absl::StartsWith(requested_device, "cuda:");
  const absl::Status alone = JudgeTogether(
      *connection.store, "gpu", env, GpuPlace(device, shared), CheckGpuPlaces);
  const BackendKind* const named = FindBackend(config.backend);
  const bool may_do_without =
      requested_device == "auto" && (named == nullptr || named->serves_cpu);
  if (!absl::IsInvalidArgument(alone) || !may_do_without) return alone;
  hardware.gpus = 0;
  hardware.why_no_gpu = std::string(alone.message());
  return Place();
}

// Checks settings that must be equal on all ranks for them to connect.
absl::Status Communicator::Parts::CheckSettings() {
  if (!has_peers()) return absl::OkStatus();
  const std::string own =
      absl::StrCat("backend ", backend->name, ", check_collectives ",
                   config.check_collectives ? "on" : "off");
  const auto judge = [](const std::vector<std::string>& settings) {
    for (size_t rank = 1; rank < settings.size(); ++rank) {
      if (settings[rank] == settings[0]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "ranks disagree: rank ", rank, " has ", settings[rank],
          ", but rank 0 ", settings[0], "; give every rank the same flags"));
    }
    return absl::OkStatus();
  };
  return JudgeTogether(*connection.store, "settings", env, own, judge);
}

absl::Status Communicator::Parts::AgreeOnHosts() {
  if (!has_peers()) {
    for (int rank = 0; rank < env.world_size; ++rank)
      hosts.push_back(rank / env.local_world_size);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::string all,
                   DecideTogether(*connection.store, "host", env,
                                  HostPlace(env), [](const auto& places) {
                                    return absl::StrJoin(HostsOf(places), ",");
                                  }));
  for (const absl::string_view host : absl::StrSplit(all, ',')) {
    if (absl::SimpleAtoi(host, &hosts.emplace_back())) continue;
    return absl::UnavailableError(
        absl::StrCat("the store holds \"", all,
                     "\" in place of the ranks' "
                     "hosts: another program writes to it"));
  }
  return absl::OkStatus();
}

absl::Status Communicator::Parts::Connect() {
  if (backend->on_device || config.poll_gloo) StartWatchdog();
  groups = std::make_shared<ProcessGroups>(ProcessGroupsConfig{
      env, config, backend, device, connection.store, log, watchdog});
  ASSIGN_OR_RETURN(process_group,
                   groups->Add({"", AllRanks(env.world_size), env.rank}));
  if (has_peers()) {
    const bool is_local = env.local_world_size == env.world_size;
    heartbeat = std::make_unique<Heartbeat>(connection.second_store, env.rank,
                                            log, is_local ? "" : HostName());
  }
  return absl::OkStatus();
}

// Called before the groups exist, since they hand their works to the watchdog.
// The heartbeat starts after them, before any collective.
void Communicator::Parts::StartWatchdog() {
  WatchdogConfig watchdog_config;
  watchdog_config.rank = env.rank;
  watchdog_config.world_size = env.world_size;
  watchdog_config.timeout = config.collective_timeout;
  if (has_peers()) watchdog_config.store = connection.second_store;
  watchdog_config.around_polling =
      [gpu = device](const std::function<void()>& poll) {
        AllowPollingDuringCapture(gpu, poll);
      };
  // These two refer to the parts. Only GiveUp calls them, which StandDown
  // prevents.
  watchdog_config.heartbeat = [this] { return heartbeat.get(); };
  watchdog_config.abort = [this] { groups->Abort(); };
  watchdog_config.dump_recorder = [on_gpu = device.is_cuda()] {
    return on_gpu ? DumpNcclRecorder()
                  : c10d::dump_fr_trace_json(/*includeCollectives=*/true,
                                             /*onlyActive=*/false);
  };
  watchdog = std::make_shared<Watchdog>(std::move(watchdog_config), log);
}

// NCCL's abort may hang if the GPU does.
void Communicator::Parts::Abort() {
  constexpr absl::Duration kPatience = absl::Seconds(5);
  if (watchdog == nullptr) return groups->Abort();
  RunWithin(kPatience, [aborted = groups] { aborted->Abort(); });
}

// A GPU may lag some steps behind the host.
void Communicator::Parts::EndWatchdog() {
  constexpr absl::Duration kForTheGpu = absl::Seconds(10);
  if (watchdog == nullptr) return;
  if (!failed) watchdog->Drain(kForTheGpu);
  StandDown();
}

void Communicator::Parts::StandDown() {
  if (watchdog == nullptr || watchdog->StandDown()) return;
  absl::SleepFor(absl::InfiniteDuration());
}

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    const RankEnv& env, const CommConfig& config) {
  auto parts = std::make_unique<Parts>();
  parts->env = env;
  parts->config = config;
  parts->hardware = DetectHardware();
  RETURN_IF_ERROR(parts->Place());
  RETURN_IF_ERROR(parts->Meet());
  RETURN_IF_ERROR(parts->CheckGpus());
  RETURN_IF_ERROR(parts->CheckSettings());
  RETURN_IF_ERROR(parts->AgreeOnHosts());
  RETURN_IF_ERROR(parts->Connect());
  return std::unique_ptr<Communicator>(new Communicator(std::move(parts)));
}

Communicator::Communicator(std::shared_ptr<Parts> parts)
    : parts_(std::move(parts)) {}

std::unique_ptr<Communicator> Communicator::Within(const Group& group) {
  std::unique_ptr<Communicator> narrowed(new Communicator(parts_));
  narrowed->job_ = &job();
  narrowed->narrowed_to_ = group;
  return narrowed;
}

Communicator::~Communicator() {
  constexpr absl::Duration kForPeersToFinish = absl::Seconds(2);
  constexpr absl::Duration kForPeersToExplain = absl::Seconds(1);
  if (job_ != nullptr) return;  // the job's communicator closes connections
  Parts& parts = *parts_;
  parts.EndWatchdog();
  const CollectiveReport suspect = parts.log->Suspect();
  const bool broken = IsStuck(*parts.log) || parts.failed;
  if (parts.heartbeat != nullptr) {
    // A rank that leaves after a failure elsewhere is not its cause.
    if (suspect.state == CollectiveReport::State::kFailed) {
      parts.heartbeat->MarkFailed(suspect.description);
    }
    parts.heartbeat->Leave();
    // Closing a connection may discard data that a slower peer has yet to read,
    // and peers that explain a failure need the store's server.
    if (!broken || parts.connection.is_server) {
      AwaitDepartures(*parts.connection.store, parts.env.world_size,
                      broken ? kForPeersToExplain : kForPeersToFinish);
    }
  }
  if (broken) {
    parts.Abort();
  } else if (parts.watchdog != nullptr) {
    parts.groups->ShutDown();
  }
  if (IsStuck(*parts.log) || (broken && parts.watchdog != nullptr)) {
    // Gloo's destructor would wait for missing peers until the collective
    // timeout. Its threads sleep; the end of the process closes the
    // connections.
    (void)parts.process_group.release();
    parts.groups->Leak();
  }
}

const RankEnv& Communicator::env() const { return parts_->env; }
int Communicator::rank() const {
  return job_ == nullptr ? parts_->env.rank : narrowed_to_.place();
}
int Communicator::world_size() const {
  return job_ == nullptr ? parts_->env.world_size : narrowed_to_.size();
}
absl::string_view Communicator::backend() const {
  return parts_->backend->name;
}
const std::vector<int>& Communicator::hosts() const { return parts_->hosts; }
bool Communicator::has_peers() const {
  return parts_->has_peers() && world_size() > 1;
}
bool Communicator::runs_on_device() const { return parts_->backend->on_device; }
c10::Device Communicator::device() const { return parts_->device; }
absl::string_view Communicator::why_on_cpu() const {
  return parts_->why_on_cpu;
}
absl::string_view Communicator::why_backend() const {
  return parts_->config.backend == "auto" ? parts_->backend->auto_reason : "";
}
const c10::intrusive_ptr<c10d::ProcessGroup>& Communicator::process_group()
    const {
  return job_ == nullptr ? parts_->process_group : narrowed_to_.process_group();
}

Group Communicator::world() {
  return job_ != nullptr ? narrowed_to_
                         : Group("the job", AllRanks(world_size()), rank(),
                                 process_group(), this);
}

absl::StatusOr<Group> Communicator::NewGroup(absl::string_view name,
                                             const std::vector<int>& ranks) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  const std::set<int> distinct(ranks.begin(), ranks.end());
  if (self == ranks.end() || distinct.size() != ranks.size() ||
      *distinct.begin() < 0 || *distinct.rbegin() >= world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group ", name, " of ranks ", absl::StrJoin(ranks, ", "), " on rank ",
        rank(), " of ", world_size(),
        ": a group has ranks of the job, each once, and the rank that makes "
        "it"));
  }
  const GroupPlace place = {std::string(name), ranks,
                            static_cast<int>(self - ranks.begin())};
  ASSIGN_OR_RETURN(auto process_group, parts_->groups->Add(place));
  return Group(place.name, ranks, place.rank, std::move(process_group), this);
}

void Communicator::SetRankPlaces(std::vector<std::string> places) {
  parts_->log->SetRankPlaces(std::move(places));
}

int64_t Communicator::last_collective_start_ns() const {
  return parts_->log->last_start_ns();
}
void Communicator::StartTraffic() { parts_->log->StartTraffic(); }
void Communicator::StopTraffic() { parts_->log->StopTraffic(); }
std::vector<CommEvent> Communicator::TakeTraffic() {
  return parts_->log->TakeTraffic();
}

absl::Status Communicator::AllReduce(at::Tensor& tensor, ReduceOp op) {
  RETURN_IF_ERROR(CheckTensor("all_reduce", tensor));
  if (op == ReduceOp::kAverage && !tensor.is_floating_point()) {
    return absl::InvalidArgumentError(
        "all_reduce: the average of integers is not an integer; convert the "
        "tensor to a floating-point type");
  }
  try {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = ToC10d(op);
    process_group()->allreduce(tensors, options)->wait();
    if (op == ReduceOp::kAverage) tensor.div_(world_size());
  } catch (const std::exception& error) {
    return ExplainFailure("all_reduce", error);
  }
  return absl::OkStatus();
}

absl::Status Communicator::Broadcast(at::Tensor& tensor, int root) {
  RETURN_IF_ERROR(CheckTensor("broadcast", tensor));
  if (root < 0 || root >= world_size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "broadcast: root ", root, " is not a rank of ", world_size()));
  }
  try {
    std::vector<at::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    process_group()->broadcast(tensors, options)->wait();
  } catch (const std::exception& error) {
    return ExplainFailure("broadcast", error);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<at::Tensor>> Communicator::AllGather(
    const at::Tensor& tensor) {
  RETURN_IF_ERROR(CheckTensor("all_gather", tensor));
  try {
    std::vector<at::Tensor> inputs = {tensor};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int rank = 0; rank < world_size(); ++rank) {
      outputs[0].push_back(at::empty_like(tensor));
    }
    process_group()->allgather(outputs, inputs)->wait();
    return std::move(outputs[0]);
  } catch (const std::exception& error) {
    return ExplainFailure("all_gather", error);
  }
}

absl::Status Communicator::Barrier() {
  try {
    // Bypasses ProcessGroup::barrier, which keeps a tensor in a static variable
    // and so cannot be called by two ranks that are threads.
    c10d::BarrierOptions options;
    options.device = device();
    process_group()->getBackend(device().type())->barrier(options)->wait();
  } catch (const std::exception& error) {
    return ExplainFailure("barrier", error);
  }
  return absl::OkStatus();
}

absl::Status Communicator::ExplainFailure(absl::string_view attempted,
                                          const std::exception& error) {
  parts_->StandDown();
  Failure failure;
  failure.attempted = std::string(attempted);
  failure.rank = env().rank;
  failure.world_size = env().world_size;
  failure.error = PlainMessage(error);
  failure.collective_timeout = parts_->config.collective_timeout;
  if (parts_->config.file_store.empty() && !env().master_addr.empty()) {
    failure.store_address =
        absl::StrCat(env().master_addr, ":", env().master_port);
  }
  AwaitLog([&] {
    failure.collective = parts_->log->Suspect();
    return failure.collective.state != CollectiveReport::State::kInFlight;
  });
  const bool of_communication = IsOfCommunication(error);
  const bool by_collective =
      failure.collective.state == CollectiveReport::State::kFailed ||
      (failure.collective.state != CollectiveReport::State::kNone &&
       of_communication);
  Heartbeat* const heartbeat = parts_->heartbeat.get();
  if (!by_collective && heartbeat != nullptr) {
    // The other ranks then name this rank, not the messages missing from it.
    heartbeat->MarkFailed(failure.attempted);
  } else if (heartbeat == nullptr && runs_on_device() &&
             (by_collective || of_communication)) {
    parts_->failed = true;  // an orderly shutdown might hang
    parts_->Abort();
  }
  if (!by_collective || heartbeat == nullptr)
    return DescribeOtherFailure(failure);
  parts_->failed = true;
  failure.order = heartbeat->MarkFailed(failure.collective.description);
  // Both sides detect a mismatch by themselves.
  if (IsMismatch(error)) return DescribeMismatch(failure);
  // Fails ranks that wait for this one now rather than when this process ends:
  // along a chain of ranks the delays would add up.
  parts_->Abort();
  return ExplainByPeers(failure, *parts_->connection.store);
}

}  // namespace rankwise

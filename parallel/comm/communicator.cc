#include "parallel/comm/communicator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/communicator_parts.h"
#include "parallel/comm/failure_report.h"
#include "parallel/comm/peers.h"
#include "parallel/comm/plain_error.h"
#include "parallel/comm/steady_time.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

absl::StatusOr<std::unique_ptr<Communicator>> Communicator::Create(
    const RankEnv& env, const CommConfig& config) {
  auto parts = std::make_unique<Parts>();
  parts->env = env;
  parts->config = config;
  parts->hardware = DetectHardware();
  absl::Status status = parts->Place();
  if (status.ok()) status = parts->Meet();
  if (status.ok()) status = parts->CheckGpus();
  if (status.ok()) status = parts->Agree();
  if (status.ok()) status = parts->Connect();
  if (!status.ok()) return status;
  return std::unique_ptr<Communicator>(new Communicator(std::move(parts)));
}

Communicator::Communicator(std::unique_ptr<Parts> parts)
    : parts_(std::move(parts)) {}

namespace {

// True when a collective is still in flight after the moment by which the log
// may lag behind a waiting thread.
bool IsStuck(const CollectiveLog& log) {
  const Deadline deadline(absl::Milliseconds(100));
  while (log.in_flight() > 0 && !deadline.passed()) {
    absl::SleepFor(absl::Microseconds(200));
  }
  return log.in_flight() > 0;
}

}  // namespace

Communicator::~Communicator() {
  constexpr absl::Duration kForPeersToFinish = absl::Seconds(2);
  constexpr absl::Duration kForPeersToExplain = absl::Seconds(1);
  Parts& parts = *parts_;
  parts.EndWatch();
  const CollectiveReport suspect = parts.log->Suspect();
  const bool broken = IsStuck(*parts.log) || parts.failed;
  if (parts.heartbeat != nullptr) {
    // Who leaves because of what has failed is not why others fail.
    if (suspect.state == CollectiveReport::State::kFailed) {
      parts.heartbeat->MarkFailed(suspect.description);
    }
    parts.heartbeat->Leave();
    // Closing a connection may discard what a slower peer has yet to read, and
    // a server's end takes the store from peers that explain a failure.
    if (!broken || parts.connection.is_server) {
      AwaitDepartures(*parts.connection.store, parts.env.world_size,
                      broken ? kForPeersToExplain : kForPeersToFinish);
    }
  }
  if (broken) {
    parts.Abort();
  } else if (parts.watch != nullptr) {
    parts.groups->ShutDown();
  }
  if (IsStuck(*parts.log) || (broken && parts.watch != nullptr)) {
    // Gloo's destructor would wait for what never comes, until the collective
    // timeout. Its threads sleep; the process's end closes the connections.
    (void)parts.process_group.release();
    parts.groups->Leak();
  }
}

const RankEnv& Communicator::env() const { return parts_->env; }
int Communicator::rank() const { return parts_->env.rank; }
int Communicator::world_size() const { return parts_->env.world_size; }
absl::string_view Communicator::backend() const { return parts_->backend; }
c10::Device Communicator::device() const { return parts_->device; }
absl::string_view Communicator::why_on_cpu() const {
  return parts_->why_on_cpu;
}
const c10::intrusive_ptr<c10d::ProcessGroup>& Communicator::process_group()
    const {
  return parts_->process_group;
}

absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> Communicator::NewGroup(
    absl::string_view name, const std::vector<int>& ranks) {
  GroupPlace place;
  place.name = std::string(name);
  place.ranks = ranks;
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
  place.rank = static_cast<int>(self - ranks.begin());
  return parts_->groups->Add(place);
}

int64_t Communicator::last_collective_start_ns() const {
  return parts_->log->last_start_ns();
}
double Communicator::collective_seconds() const {
  return parts_->log->busy_seconds();
}
void Communicator::StartTraffic() { parts_->log->StartTraffic(); }
void Communicator::StopTraffic() { parts_->log->StopTraffic(); }
std::vector<CommEvent> Communicator::TakeTraffic() {
  return parts_->log->TakeTraffic();
}

namespace {

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // not every backend has it: sum, then divide
      break;
  }
  return c10d::ReduceOp::SUM;
}

absl::Status CheckTensor(const char* what, const at::Tensor& tensor) {
  if (tensor.defined() && tensor.is_contiguous()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": the tensor must be defined and contiguous; call contiguous()"));
}

}  // namespace

absl::Status Communicator::AllReduce(at::Tensor& tensor, ReduceOp op) {
  absl::Status status = CheckTensor("all_reduce", tensor);
  if (!status.ok()) return status;
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
  absl::Status status = CheckTensor("broadcast", tensor);
  if (!status.ok()) return status;
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
  const absl::Status status = CheckTensor("all_gather", tensor);
  if (!status.ok()) return status;
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
    // Past ProcessGroup::barrier, which keeps a tensor in a static variable and
    // so cannot be called by two ranks that are threads.
    c10d::BarrierOptions options;
    options.device = device();
    process_group()->getBackend(device().type())->barrier(options)->wait();
  } catch (const std::exception& error) {
    return ExplainFailure("barrier", error);
  }
  return absl::OkStatus();
}

namespace {

// Waiting threads may learn of a failure just before the log does.
CollectiveReport SuspectOf(const CollectiveLog& log) {
  constexpr absl::Duration kForTheLog = absl::Milliseconds(100);
  const Deadline deadline(kForTheLog);
  CollectiveReport suspect = log.Suspect();
  while (suspect.state == CollectiveReport::State::kInFlight &&
         !deadline.passed()) {
    absl::SleepFor(absl::Milliseconds(1));
    suspect = log.Suspect();
  }
  return suspect;
}

}  // namespace

absl::Status Communicator::ExplainFailure(absl::string_view attempted,
                                          const std::exception& error) {
  constexpr absl::Duration kPatience = absl::Milliseconds(2500);
  parts_->StandDown();
  Failure failure;
  failure.attempted = std::string(attempted);
  failure.rank = rank();
  failure.world_size = world_size();
  failure.error = PlainMessage(error);
  failure.collective_timeout = parts_->config.collective_timeout;
  failure.collective = SuspectOf(*parts_->log);
  const bool by_collective =
      failure.collective.state == CollectiveReport::State::kFailed ||
      (failure.collective.state != CollectiveReport::State::kNone &&
       IsOfCommunication(error));
  if (!by_collective) {
    // So that the others name this rank, and not what they then miss from it.
    if (parts_->heartbeat != nullptr) {
      parts_->heartbeat->MarkFailed(failure.attempted);
    }
    return DescribeOtherFailure(failure);
  }
  if (parts_->heartbeat == nullptr) {
    if (parts_->backend == "nccl") {
      parts_->failed = true;  // closing in good order might hang
      parts_->Abort();
    }
    return DescribeOtherFailure(failure);
  }
  parts_->failed = true;
  failure.order = parts_->heartbeat->MarkFailed(failure.collective.description);
  // Both sides of a mismatch find it by themselves.
  if (IsMismatch(error)) return DescribeMismatch(failure);
  // Ranks that wait for this one learn now that it has failed, and not when its
  // process ends: along a chain of ranks that would add up.
  parts_->Abort();
  c10d::Store& store = *parts_->connection.store;
  const absl::StatusOr<std::vector<PeerStatus>> peers =
      AskPeers(store, rank(), world_size(), kPatience);
  if (peers.ok()) ReportBlame(store, rank(), FindBlame(failure, *peers));
  return DescribeFailure(failure, peers);
}

}  // namespace rankwise

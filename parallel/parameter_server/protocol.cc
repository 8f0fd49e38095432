#include "parallel/parameter_server/protocol.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/peers.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int64_t kHeaderSize = 8;
// Tag of a message that is never sent.
constexpr int kNeverTag = 1 << 30;

// Exact for integers of up to 53 bits.
at::Tensor Header(std::initializer_list<double> values) {
  at::Tensor header = EmptyHeader();
  std::copy(values.begin(), values.end(), header.data_ptr<double>());
  return header;
}

double Double(int64_t value) { return static_cast<double>(value); }
int64_t Int(double value) { return static_cast<int64_t>(value); }

}  // namespace

absl::StatusOr<Consistency> ParseConsistency(const std::string& text) {
  constexpr int64_t kUnbounded = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMostRounds = int64_t{1} << 40;
  absl::string_view rest = text;
  int64_t bound = 0;
  if (text == "bsp") return Consistency{};
  if (text == "async") return Consistency{false, kUnbounded};
  if (absl::ConsumePrefix(&rest, "ssp:") && absl::SimpleAtoi(rest, &bound) &&
      bound >= 0 && bound <= kMostRounds) {
    return Consistency{bound == 0, bound};
  }
  return absl::InvalidArgumentError(
      "must be bsp, ssp:K with K of at least 0, such as ssp:2, or async");
}

// When a connection breaks, Gloo fails receives that have not started, but not
// partially transferred messages, which would block until the timeout.
// Therefore a receive of a message that is never sent stays posted; its failure
// interrupts all waits.
struct Link::Connection {
  Connection(Group any_pair, bool interrupts_waits)
      : pair(std::move(any_pair)) {
    if (!interrupts_waits) return;
    std::vector<at::Tensor> nothing = {at::empty({1}, at::kByte)};
    // Unmonitored, because the log would report it as a late message.
    break_notice =
        WithoutMonitoring(pair.process_group()->getBackend(c10::kCPU))
            ->recv(nothing, other(), kNeverTag);
    watcher = std::thread([this] { AwaitBreak(); });
  }
  ~Connection() {
    if (!watcher.joinable()) return;
    break_notice->abort();
    watcher.join();
  }

  int other() const { return 1 - pair.place(); }

  void AwaitBreak() {
    constexpr std::chrono::hours kForEver(24 * 365);
    try {
      break_notice->wait(kForEver);
      return;  // the destructor's abort()
    } catch (const std::exception&) {
      // The connection is broken.
    }
    const std::lock_guard lock(mutex);
    is_broken = true;
    for (const auto& each : in_flight) {
      if (const WorkPtr work = each.lock()) work->abort();
    }
  }

  void Follow(const WorkPtr& work, std::vector<WorkPtr>& works) {
    works.push_back(work);
    if (!watcher.joinable()) return;
    const std::lock_guard lock(mutex);
    std::erase_if(in_flight, [](const auto& each) { return each.expired(); });
    in_flight.emplace_back(work);
    if (is_broken) work->abort();
  }

  const Group pair;
  WorkPtr break_notice;
  std::thread watcher;
  std::mutex mutex;  // guards the members below
  std::vector<c10::weak_intrusive_ptr<c10d::Work>> in_flight;
  bool is_broken = false;
};

Link::Link(Group pair, bool interrupts_waits)
    : connection_(
          std::make_shared<Connection>(std::move(pair), interrupts_waits)) {}

int Link::peer() const {
  return connection_->pair.ranks()[connection_->other()];
}

void Link::Send(const at::Tensor& tensor, int tag,
                std::vector<WorkPtr>& works) {
  if (tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {tensor};
  connection_->Follow(connection_->pair.process_group()->send(
                          tensors, connection_->other(), tag),
                      works);
}

void Link::Receive(const at::Tensor& tensor, int tag,
                   std::vector<WorkPtr>& works) {
  if (tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {tensor};
  connection_->Follow(connection_->pair.process_group()->recv(
                          tensors, connection_->other(), tag),
                      works);
}

void Link::ThrowIfBroken() const {
  const std::lock_guard lock(connection_->mutex);
  TORCH_CHECK(!connection_->is_broken, "the connection was closed");
}

void Link::Abort() {
  connection_->pair.process_group()->getBackend(c10::kCPU)->abort();
}

void WaitFor(std::vector<WorkPtr>& works) {
  constexpr std::chrono::milliseconds kAtOnce(1);
  for (const WorkPtr& work : works) {
    if (work->wait()) continue;
    // Interrupted. Its message may still be complete, such as the last one of a
    // worker that has left; otherwise this throws.
    TORCH_CHECK(work->wait(kAtOnce), "the connection was closed");
  }
  works.clear();
}

at::Tensor EmptyHeader() { return at::empty({kHeaderSize}, at::kDouble); }

at::Tensor ToHeader(const Request& request) {
  return Header({Double(request.kind), Double(request.round),
                 Double(request.read_version), Double(request.read_round),
                 request.learning_rate, request.loss, request.step_loss,
                 Double(request.examples)});
}

at::Tensor ToHeader(const Reply& reply) {
  return Header({reply.ending ? 1.0 : 0.0, Double(reply.version),
                 Double(reply.round), Double(reply.step), Double(reply.epoch),
                 Double(reply.position), reply.waiting ? 1.0 : 0.0});
}

Request RequestFrom(const at::Tensor& header) {
  const double* values = header.const_data_ptr<double>();
  return {Int(values[0]), Int(values[1]), Int(values[2]), Int(values[3]),
          values[4],      values[5],      values[6],      Int(values[7])};
}

Reply ReplyFrom(const at::Tensor& header) {
  const double* values = header.const_data_ptr<double>();
  return {values[0] != 0, Int(values[1]), Int(values[2]), Int(values[3]),
          Int(values[4]), Int(values[5]), values[6] != 0};
}

// Groups that are created concurrently must be disjoint, so a rank has at most
// one partner per turn; without a partner it creates a group of itself.
absl::StatusOr<ServerRanks> ConnectServers(Communicator& comm, int servers) {
  const int rank = comm.rank(), workers = comm.world_size() - servers;
  const int turns = std::max(servers, workers);
  const bool serves = rank < servers;
  ServerRanks ranks;
  std::vector<int> own = {rank};
  if (serves) {
    own.resize(static_cast<size_t>(servers));
    std::iota(own.begin(), own.end(), 0);
  }
  ASSIGN_OR_RETURN(ranks.own,
                   comm.NewGroup(serves ? "servers" : "worker", own));
  std::vector<std::pair<int, Group>> pairs;
  for (int turn = 0; turn < turns; ++turn) {
    const int number = serves ? rank : rank - servers;
    const int partner =
        serves ? (number + turn) % turns : (number - turn + turns) % turns;
    const bool alone = partner >= (serves ? workers : servers);
    std::vector<int> members = {rank};
    if (!alone && serves) members.push_back(servers + partner);
    if (!alone && !serves) members.insert(members.begin(), partner);
    ASSIGN_OR_RETURN(Group pair, comm.NewGroup("server_worker", members));
    if (!alone) pairs.emplace_back(partner, std::move(pair));
  }
  std::sort(pairs.begin(), pairs.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  const bool interrupts_waits = comm.backend() == "gloo";
  for (auto& [partner, pair] : pairs)
    ranks.links.emplace_back(std::move(pair), interrupts_waits);
  RETURN_IF_ERROR(comm.Barrier());
  if (rank == 0) AllowDeaths(*comm.process_group()->getStore());
  return ranks;
}

}  // namespace rankwise

#include "parallel/parameter_server/protocol.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/diagnosis/peers.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int64_t kHeaderSize = 6;

// Integers of up to 53 bits are exact.
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

void Link::Send(const at::Tensor& tensor, int tag,
                std::vector<WorkPtr>& works) {
  if (tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {tensor};
  works.push_back(pair_.process_group()->send(tensors, 1 - pair_.place(), tag));
}

void Link::Receive(const at::Tensor& tensor, int tag,
                   std::vector<WorkPtr>& works) {
  if (tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {tensor};
  works.push_back(pair_.process_group()->recv(tensors, 1 - pair_.place(), tag));
}

void Link::Abort() { pair_.process_group()->getBackend(c10::kCPU)->abort(); }

void WaitFor(std::vector<WorkPtr>& works) {
  for (const WorkPtr& work : works) work->wait();
  works.clear();
}

at::Tensor EmptyHeader() { return at::empty({kHeaderSize}, at::kDouble); }

at::Tensor ToHeader(const Request& request) {
  return Header({Double(request.kind), Double(request.round),
                 Double(request.read_version), Double(request.read_round),
                 request.learning_rate, request.loss});
}

at::Tensor ToHeader(const Reply& reply) {
  return Header({reply.ending ? 1.0 : 0.0, Double(reply.version),
                 Double(reply.round), Double(reply.step), Double(reply.epoch),
                 Double(reply.position)});
}

Request RequestFrom(const at::Tensor& header) {
  const double* values = header.const_data_ptr<double>();
  return {Int(values[0]), Int(values[1]), Int(values[2]),
          Int(values[3]), values[4],      values[5]};
}

Reply ReplyFrom(const at::Tensor& header) {
  const double* values = header.const_data_ptr<double>();
  return {values[0] != 0, Int(values[1]), Int(values[2]),
          Int(values[3]), Int(values[4]), Int(values[5])};
}

// Groups that are made at the same time must be disjoint, so in each turn a
// rank has at most one partner; without a partner it makes a group of itself.
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
  for (auto& [partner, pair] : pairs) ranks.links.emplace_back(std::move(pair));
  RETURN_IF_ERROR(comm.Barrier());
  if (rank == 0) AllowDeaths(*comm.process_group()->getStore());
  return ranks;
}

}  // namespace rankwise

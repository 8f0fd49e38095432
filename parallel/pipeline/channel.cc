#include "parallel/pipeline/channel.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

Channel::Channel(c10::intrusive_ptr<c10d::ProcessGroup> group,
                 std::vector<int> ranks, int rank, c10::Device device)
    : Mail(rank, device), group_(std::move(group)), ranks_(std::move(ranks)) {
  TORCH_CHECK(rank >= 0 && rank < num_ranks(), "rank ", rank,
              " in a pipeline of ", num_ranks(), " ranks");
  TORCH_CHECK(group_ != nullptr || num_ranks() == 1, "a pipeline of ",
              num_ranks(), " ranks needs a process group");
}

Channel::~Channel() = default;

void Channel::Start(P2POp& transfer) {
  std::vector<at::Tensor> tensors = {transfer.tensor};
  const int peer = ranks_[transfer.peer];
  transfer.work = transfer.is_send ? group_->send(tensors, peer, transfer.tag)
                                   : group_->recv(tensors, peer, transfer.tag);
}

void Channel::Complete(P2POp& transfer) {
  transfer.work->wait();
  transfer.work.reset();
}

std::vector<double> Channel::Exchange(int peer,
                                      const std::vector<double>& values) {
  constexpr int kTag = 0;  // nothing else is in flight
  const auto size = static_cast<int64_t>(values.size());
  at::Tensor mine = at::empty({size}, at::kDouble);
  std::memcpy(mine.data_ptr(), values.data(), values.size() * sizeof(double));
  P2POp send(true, peer, kTag, mine.to(device()));
  P2POp receive(false, peer, kTag,
                at::zeros({size}, mine.options().device(device())));
  P2POp* order[] = {&send, &receive};
  if (peer < rank()) std::swap(order[0], order[1]);
  for (P2POp* transfer : order) Start(*transfer);
  for (P2POp* transfer : order) Wait(*transfer);
  const at::Tensor theirs = receive.tensor.cpu();
  const double* const data = theirs.const_data_ptr<double>();
  return std::vector<double>(data, data + size);
}

std::vector<std::vector<double>> Channel::Gather(
    const std::vector<double>& values) {
  std::vector<std::vector<double>> gathered(ranks_.size(), values);
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (peer == rank()) continue;
    gathered[peer] = Exchange(peer, values);
    connected_.insert(peer);
  }
  return gathered;
}

void Channel::Connect(const Schedule& schedule) {
  if (device().is_cpu()) return;
  std::set<int> peers;
  for (size_t stage = 0; stage + 1 < schedule.rank_of_stage.size(); ++stage) {
    const int from = schedule.rank_of_stage[stage];
    const int to = schedule.rank_of_stage[stage + 1];
    if (from == to) continue;
    if (from == rank()) peers.insert(to);
    if (to == rank()) peers.insert(from);
  }
  // Ascending on every rank: of the pairs that have not met, the first in
  // lexicographic order always can.
  for (int peer : peers) {
    if (connected_.insert(peer).second) Exchange(peer, {0});
  }
}

}  // namespace rankwise

#include "parallel/pipeline/channel.h"

#include <cstring>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "c10/util/Exception.h"
#include "parallel/pipeline/timeline.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

Channel::Channel(c10::intrusive_ptr<c10d::ProcessGroup> group,
                 std::vector<int> ranks, int rank, c10::Device device)
    : group_(std::move(group)),
      ranks_(std::move(ranks)),
      rank_(rank),
      device_(device) {
  TORCH_CHECK(rank_ >= 0 && rank_ < num_ranks(), "rank ", rank_,
              " in a pipeline of ", num_ranks(), " ranks");
  TORCH_CHECK(group_ != nullptr || num_ranks() == 1, "a pipeline of ",
              num_ranks(), " ranks needs a process group");
  if (group_ != nullptr && num_ranks() > 1) {
    coalesces_ = group_->getBackend(device_.type())->supportsCoalescing();
  }
}

Channel::~Channel() = default;

void Channel::Start(std::vector<Transfer*> batch) {
  const bool coalesce = coalesces_ && batch.size() > 1;
  if (coalesce) group_->startCoalescing(device_.type());
  for (Transfer* transfer : batch) {
    std::vector<at::Tensor> tensors = {transfer->tensor};
    const int peer = ranks_[transfer->peer];
    transfer->work = transfer->is_send
                         ? group_->send(tensors, peer, transfer->tag)
                         : group_->recv(tensors, peer, transfer->tag);
  }
  if (!coalesce) return;
  const c10::intrusive_ptr<c10d::Work> all =
      group_->endCoalescing(device_.type());
  for (Transfer* transfer : batch) transfer->work = all;
}

void Channel::Wait(Transfer& transfer) {
  const double start = Now();
  transfer.work->wait();
  transfer.work.reset();
  waits_.push_back(
      {static_cast<int64_t>(transfer.tensor.nbytes()), Now() - start});
}

std::vector<std::vector<double>> Channel::Gather(
    const std::vector<double>& values) {
  constexpr int kTag = 0;
  const auto size = static_cast<int64_t>(values.size());
  at::Tensor mine = at::empty({size}, at::kDouble);
  std::memcpy(mine.data_ptr(), values.data(), values.size() * sizeof(double));
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < num_ranks(); ++peer) {
    if (peer == rank_) continue;
    const at::Tensor theirs = at::zeros({size}, mine.options().device(device_));
    transfers.push_back({true, peer, kTag, mine.to(device_), nullptr});
    transfers.push_back({false, peer, kTag, theirs, nullptr});
  }
  std::vector<Transfer*> batch;
  for (Transfer& transfer : transfers) batch.push_back(&transfer);
  if (!batch.empty()) Start(std::move(batch));
  std::vector<std::vector<double>> gathered(ranks_.size(), values);
  for (Transfer& transfer : transfers) {
    Wait(transfer);
    if (transfer.is_send) continue;
    const at::Tensor theirs = transfer.tensor.cpu();
    const double* const data = theirs.const_data_ptr<double>();
    gathered[transfer.peer].assign(data, data + size);
  }
  return gathered;
}

}  // namespace rankwise

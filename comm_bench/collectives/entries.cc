#include "comm_bench/collectives/entries.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {

at::Tensor NewBuffer(const Call& call, int64_t count) {
  if (call.memory != nullptr) return call.memory->New(count, call.dtype);
  return at::empty({count},
                   at::TensorOptions().dtype(call.dtype).device(call.device));
}

at::Tensor PartOf(const at::Tensor& buffer, int index, int parts) {
  const int64_t size = buffer.numel() / parts;
  return buffer.narrow(0, index * size, size);
}

Buffers WholeBuffers(const Call& call) {
  Buffers buffers;
  buffers.input = NewBuffer(call, call.count);
  buffers.output = call.in_place ? buffers.input : NewBuffer(call, call.count);
  buffers.input_parts = {buffers.input};
  buffers.output_parts = {buffers.output};
  return buffers;
}

RootedBuffers MakeRootedBuffers(const Call& call) {
  RootedBuffers buffers;
  const bool root = call.rank == call.root;
  if (root) {
    buffers.whole = NewBuffer(call, call.count);
    for (int i = 0; i < call.world_size; ++i) {
      buffers.parts.push_back(PartOf(buffers.whole, i, call.world_size));
    }
  }
  buffers.own = call.in_place && root ? buffers.parts[call.root]
                                      : NewBuffer(call, PartOf(call));
  return buffers;
}

void FillOwnData(const Call& call, Buffers& buffers) {
  if (buffers.output.defined()) FillUnwritten(buffers.output);
  Fill(buffers.input, {{buffers.input.numel(), 0, DataOf(call.rank)}});
}

void FillContribution(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  Fill(buffers.input, {{call.count, 0, ContributionOf(call)}});
}

void FillRootsData(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  if (call.rank != call.root) return;
  Fill(buffers.input, {{call.count, 0, DataOf(call.root)}});
}

std::vector<PatternRun> PartsOfAllRanks(const Call& call) {
  std::vector<PatternRun> parts;
  for (int rank = 0; rank < call.world_size; ++rank) {
    parts.push_back({PartOf(call), 0, DataOf(rank)});
  }
  return parts;
}

std::optional<WrongElement> CheckDataOf(const Call& call,
                                        const Buffers& buffers, int from) {
  return FindWrong(buffers.output, {{call.count, 0, DataOf(from)}});
}

c10d::ReduceOp::RedOpType C10dOp(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      break;
    case ReduceOp::kAverage:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
  }
  return c10d::ReduceOp::SUM;
}

void Exchange(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
              int to, int from, Works& works) {
  const c10::DeviceType device = call.device.type();
  const bool grouped = group.getBackend(device)->supportsCoalescing();
  if (grouped) group.startCoalescing(device);
  auto received = group.recv(buffers.output_parts, from, kMessageTag);
  auto sent = group.send(buffers.input_parts, to, kMessageTag);
  if (grouped) {
    works.push_back(group.endCoalescing(device));
  } else {
    works.push_back(std::move(received));
    works.push_back(std::move(sent));
  }
}

NcclCall NcclSend(int to, int64_t count, int64_t offset) {
  return {.kind = NcclCall::Kind::kSend,
          .count = count,
          .peer = to,
          .input_offset = offset};
}

NcclCall NcclReceive(int from, int64_t count, int64_t offset) {
  return {.kind = NcclCall::Kind::kReceive,
          .count = count,
          .peer = from,
          .output_offset = offset};
}

}  // namespace rankwise::comm_bench

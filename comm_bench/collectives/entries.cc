#include "comm_bench/collectives/entries.h"

#include "ATen/ops/empty.h"

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

std::optional<WrongElement> CheckDataOf(const Call& call,
                                        const Buffers& buffers, int from) {
  return FindWrong(buffers.output, {{call.count, 0, DataOf(from)}});
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

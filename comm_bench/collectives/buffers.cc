#include "comm_bench/collectives/buffers.h"

#include "ATen/ops/empty.h"
#include "comm_bench/collectives/registered_memory.h"

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

std::vector<at::Tensor> EqualParts(const at::Tensor& buffer, int parts) {
  std::vector<at::Tensor> views;
  for (int i = 0; i < parts; ++i) views.push_back(PartOf(buffer, i, parts));
  return views;
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
    buffers.parts = EqualParts(buffers.whole, call.world_size);
  }
  buffers.own = call.in_place && root
                    ? buffers.parts[call.root]
                    : NewBuffer(call, call.count / call.world_size);
  return buffers;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/collectives/messages.h"

#include "comm_bench/collectives/pattern.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {

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

void FillMessage(const Call& call, Buffers& buffers) {
  FillUnwritten(buffers.output);
  Fill(buffers.input, {{call.count, 0, DataOf(call.rank)}});
}

std::optional<WrongElement> CheckMessage(const Call& call,
                                         const Buffers& buffers, int from) {
  return FindWrong(buffers.output, {{call.count, 0, DataOf(from)}});
}

}  // namespace rankwise::comm_bench

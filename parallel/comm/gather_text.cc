#include "parallel/comm/gather_text.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

constexpr int kTag = 0x74657874;  // no other message has it

at::Tensor Bytes(int64_t size) { return at::empty({size}, at::kByte); }

}  // namespace

std::vector<std::string> GatherText(Communicator* comm,
                                    const std::string& text) {
  if (comm == nullptr || comm->world_size() == 1 || comm->backend() == "fake")
    return {text};
  const auto backend = comm->process_group()->getBackend(c10::kCPU);
  const double size = static_cast<double>(text.size());
  const auto sizes =
      MakeGroupControl(comm->process_group())->Gather({&size, 1});
  if (comm->rank() != 0) {
    std::vector<at::Tensor> message = {
        Bytes(static_cast<int64_t>(text.size()))};
    std::memcpy(message[0].data_ptr(), text.data(), text.size());
    if (!text.empty()) backend->send(message, 0, kTag)->wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (size_t rank = 1; rank < sizes.size(); ++rank) {
    const auto bytes = static_cast<int64_t>(sizes[rank][0]);
    std::vector<at::Tensor> message = {Bytes(bytes)};
    if (bytes > 0) backend->recv(message, static_cast<int>(rank), kTag)->wait();
    texts.emplace_back(static_cast<const char*>(message[0].const_data_ptr()),
                       static_cast<size_t>(bytes));
  }
  return texts;
}

}  // namespace rankwise

#include "parallel/pipeline/mail.h"

#include <cstdint>

#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

P2POp::P2POp(bool is_send, int peer, int tag, at::Tensor tensor)
    : is_send(is_send), peer(peer), tag(tag), tensor(std::move(tensor)) {}
P2POp::P2POp() = default;
P2POp::~P2POp() = default;
P2POp::P2POp(P2POp&&) noexcept = default;
P2POp& P2POp::operator=(P2POp&&) noexcept = default;

Mail::~Mail() = default;

void Mail::Wait(P2POp& transfer) {
  Moment start(device_);
  Complete(transfer);
  waits_.push_back({static_cast<int64_t>(transfer.tensor.nbytes()),
                    std::move(start), Moment(device_)});
}

}  // namespace rankwise

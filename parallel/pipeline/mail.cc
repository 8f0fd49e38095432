#include "parallel/pipeline/mail.h"

#include <cstdint>

#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {

Transfer::Transfer(bool is_send, int peer, int tag, at::Tensor tensor)
    : is_send(is_send), peer(peer), tag(tag), tensor(std::move(tensor)) {}
Transfer::Transfer() = default;
Transfer::~Transfer() = default;
Transfer::Transfer(Transfer&&) noexcept = default;
Transfer& Transfer::operator=(Transfer&&) noexcept = default;

Mail::~Mail() = default;

void Mail::Wait(Transfer& transfer) {
  Moment start(device_);
  Complete(transfer);
  waits_.push_back({static_cast<int64_t>(transfer.tensor.nbytes()),
                    std::move(start), Moment(device_)});
}

}  // namespace rankwise

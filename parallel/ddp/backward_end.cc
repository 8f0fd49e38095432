#include "parallel/ddp/backward_end.h"

#include <utility>

#include "ATen/core/Tensor.h"
#include "torch/csrc/autograd/engine.h"

namespace rankwise {

void BackwardEnd::Watch(const at::Tensor& output) {
  end_ = std::make_shared<std::optional<Moment>>();
  if (!output.requires_grad()) return;
  output.register_hook([end = end_, device = device_](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [end, device] { end->emplace(device); });
  });
}

std::optional<Moment> BackwardEnd::Take() {
  if (end_ == nullptr) return std::nullopt;
  return std::exchange(*std::exchange(end_, nullptr), std::nullopt);
}

}  // namespace rankwise

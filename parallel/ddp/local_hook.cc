#include "parallel/ddp/local_hook.h"

#include <chrono>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"

namespace rankwise {

c10::intrusive_ptr<c10::ivalue::Future> LocalHook::runHook(
    c10d::GradBucket& bucket) {
  state_->store(std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count());
  const at::Tensor buffer = bucket.getBuffer();
  std::vector<c10::Device> devices;
  if (!buffer.device().is_cpu()) devices.push_back(buffer.device());
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get(),
                                                         std::move(devices));
  future->markCompleted(c10::IValue(buffer));
  return future;
}

}  // namespace rankwise

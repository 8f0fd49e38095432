#include "parallel/ddp/compress_hook.h"

#include <vector>

#include "ATen/core/ivalue.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

c10::intrusive_ptr<c10::ivalue::Future> CompressHook::runHook(
    c10d::GradBucket& bucket) {
  at::Tensor buffer = bucket.getBuffer();
  std::vector<at::Tensor> compressed{buffer.to(dtype_)};
  compressed[0].div_(state_->getSize());
  auto decompress = [buffer](c10::ivalue::Future& reduced) -> c10::IValue {
    buffer.copy_(reduced.value().toTensorVector()[0]);
    return buffer;
  };
  return state_->allreduce(compressed)
      ->getFuture()
      ->then(decompress, c10::TensorType::get());
}

}  // namespace rankwise

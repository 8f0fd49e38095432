// A communication hook that sends gradients as 16-bit floats.
#ifndef RANKWISE_PARALLEL_DDP_COMPRESS_HOOK_H_
#define RANKWISE_PARALLEL_DDP_COMPRESS_HOOK_H_

#include "c10/core/ScalarType.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/comm.hpp"

namespace rankwise {

// Casts a bucket to `dtype` (kHalf, kBFloat16), divides it by the world size,
// all-reduces it and casts it back into the bucket: Python's fp16_compress_hook
// and bf16_compress_hook. Half the bytes on the wire; the sum is 16-bit too.
// Dividing first keeps kHalf's sum from overflowing.
class CompressHook : public c10d::CppCommHookInterface<
                         c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  CompressHook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
               c10::ScalarType dtype)
      : CppCommHookInterface(group), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override;

 private:
  const c10::ScalarType dtype_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_COMPRESS_HOOK_H_

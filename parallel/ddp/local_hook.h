// A communication hook that communicates nothing: what is left of data
// parallelism is its bookkeeping.
#ifndef RANKWISE_PARALLEL_DDP_LOCAL_HOOK_H_
#define RANKWISE_PARALLEL_DDP_LOCAL_HOOK_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/comm.hpp"

namespace rankwise {

// When a bucket was last handed over, in nanoseconds of the steady clock; 0
// before the first.
using LastBucketTime = std::atomic<int64_t>;

// Hands every bucket back as it is, at once.
class LocalHook
    : public c10d::CppCommHookInterface<std::shared_ptr<LastBucketTime>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_LOCAL_HOOK_H_

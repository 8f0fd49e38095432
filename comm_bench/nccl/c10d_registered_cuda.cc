#include <thread>
#include <utility>

#include "ATen/cuda/MemPool.h"
#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "c10/cuda/CUDACachingAllocator.h"
#include "c10/cuda/CUDAGuard.h"
#include "comm_bench/nccl/c10d_registered.h"
#include "parallel/comm/monitored_backend.h"
#include "parallel/comm/plain_error.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp"

namespace rankwise::comm_bench {
namespace {

using c10::cuda::CUDACachingAllocator::CUDAAllocator;
using NcclPtr = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

// This thread's allocations come from a pool while it lives, as in Python's
// torch.cuda.use_mem_pool.
class InPool {
 public:
  explicit InPool(at::cuda::MemPool& pool) : pool_(pool) {
    const auto own = std::this_thread::get_id();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(
        pool_.device(), pool_.id(),
        [own](cudaStream_t) { return std::this_thread::get_id() == own; });
  }
  ~InPool() {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(pool_.device(),
                                                       pool_.id());
    c10::cuda::CUDACachingAllocator::releasePool(pool_.device(), pool_.id());
  }
  InPool(const InPool&) = delete;
  InPool& operator=(const InPool&) = delete;

 private:
  at::cuda::MemPool& pool_;
};

class C10dRegistered : public RegisteredMemory {
 public:
  // `device` is current.
  C10dRegistered(NcclPtr nccl, c10::Device device,
                 std::shared_ptr<CUDAAllocator> allocator)
      : nccl_(std::move(nccl)), device_(device), pool_(std::move(allocator)) {
    // Segments that the pool gets from now on are registered as they come.
    nccl_->registerMemPool(&pool_);
  }

  ~C10dRegistered() override {
    try {
      nccl_->deregisterMemPool(&pool_);
    } catch (const std::exception&) {  // the communicator is gone, and with it
                                       // what it had registered
    }
  }

  at::Tensor New(int64_t count, c10::ScalarType dtype) override {
    const c10::cuda::CUDAGuard guard(device_);
    const InPool in_pool(pool_);
    return at::empty({count}, at::TensorOptions().dtype(dtype).device(device_));
  }

 private:
  const NcclPtr nccl_;
  const c10::Device device_;
  at::cuda::MemPool pool_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredWithC10d(
    c10d::ProcessGroup& group, c10::Device device) {
  if (!device.is_cuda()) {
    return absl::InvalidArgumentError(
        "--registered: only NCCL registers buffers; run it on GPUs");
  }
  const c10::cuda::CUDAGuard guard(device);
  try {
    NcclPtr nccl = c10::dynamic_intrusive_pointer_cast<c10d::ProcessGroupNCCL>(
        WithoutMonitoring(group.getBackend(device.type())));
    if (nccl == nullptr) {
      return absl::InvalidArgumentError(
          "--registered: the process group's backend for GPUs is not NCCL");
    }
    auto allocator =
        std::dynamic_pointer_cast<CUDAAllocator>(nccl->getMemAllocator());
    if (allocator == nullptr) {
      return absl::FailedPreconditionError(
          "--registered: NCCL's allocator cannot feed a memory pool");
    }
    return std::make_unique<C10dRegistered>(std::move(nccl), device,
                                            std::move(allocator));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("--registered: ", PlainMessage(error)));
  }
}

}  // namespace rankwise::comm_bench

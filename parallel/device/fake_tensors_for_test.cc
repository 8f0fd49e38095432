// Tensors of the fake device: in host memory, computed on the CPU.
#include <array>
#include <memory>

#include "ATen/EmptyTensor.h"
#include "ATen/native/CPUFallback.h"
#include "ATen/ops/as_strided_native.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/view_native.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/core/DeviceGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/core/impl/alloc_cpu.h"
#include "c10/util/Exception.h"
#include "parallel/device/fake_device_for_test.h"
#include "parallel/device/fake_device_state_for_test.h"
#include "torch/library.h"

namespace rankwise {
namespace {

c10::impl::VirtualGuardImpl Guard() {
  return c10::impl::VirtualGuardImpl(c10::kPrivateUse1);
}

// Counts like CUDA's allocator, and like it fails before its first use.
class FakeAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    initialized_ = true;
    const c10::Device device = Guard().getDevice();
    auto* const block =
        new Block{c10::alloc_cpu(bytes), bytes, CountOf(device.index())};
    block->count->increase(bytes);
    return {block->data, block, &Free, device};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  bool initialized() override { return initialized_; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream stream) override {
    NoteFakeRecord(stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(
      c10::DeviceIndex device) override {
    TORCH_CHECK(initialized_, "the fake allocator was never used");
    return stats_[device];
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}

 private:
  struct Block {
    void* data;
    size_t bytes;
    c10::CachingAllocator::Stat* count;
  };
  static void Free(void* memory) {
    const std::unique_ptr<Block> block(static_cast<Block*>(memory));
    block->count->decrease(block->bytes);
    c10::free_cpu(block->data);
  }
  c10::CachingAllocator::Stat* CountOf(c10::DeviceIndex device) {
    return &stats_[device].allocated_bytes[static_cast<size_t>(
        c10::CachingAllocator::StatType::AGGREGATE)];
  }

  bool initialized_ = false;
  std::array<c10::CachingDeviceAllocator::DeviceStats, 2> stats_;
};

FakeAllocator& TheAllocator() {
  static FakeAllocator* const kAllocator = [] {
    auto* allocator = new FakeAllocator;
    c10::SetAllocator(c10::kPrivateUse1, allocator);
    return allocator;
  }();
  return *kAllocator;
}

const FakeAllocator& kRegistered = TheAllocator();

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device,
                 std::optional<bool>,
                 std::optional<at::MemoryFormat> memory_format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      size, &TheAllocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype), memory_format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype,
                        std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      size, stride, &TheAllocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype));
}

at::Tensor OnHost(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       tensor.options().device(at::kCPU));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool) {
  const c10::Device device = from.is_cpu() ? to.device() : from.device();
  const c10::Stream stream = Guard().getStream(device);
  if (to.is_cpu()) Guard().synchronizeStream(stream);
  if (from.is_cpu()) NoteFakeCopy(stream);
  OnHost(to).copy_(OnHost(from));
  return to;
}

// Copies the CPU's result to the output, which takes its shape.
at::Tensor CopyFromAndResize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) {
    const at::Tensor fresh = EmptyStrided(
        from.sizes(), from.strides(), to.scalar_type(), {}, to.device(), {});
    to.unsafeGetTensorImpl()->shallow_copy_from(fresh.getIntrusivePtr());
  }
  return CopyFrom(from, to, /*non_blocking=*/true);
}

void RecordStream(at::Tensor&, at::Stream stream) { NoteFakeRecord(stream); }

void OnCpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", Empty);
  library.impl("empty_strided", EmptyStrided);
  library.impl("_copy_from", CopyFrom);
  library.impl("_copy_from_and_resize", CopyFromAndResize);
  library.impl("record_stream", RecordStream);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnCpu>());
}

}  // namespace
}  // namespace rankwise

#include "samplers/loader/device_copier.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace rankwise {
namespace {

c10::impl::VirtualGuardImpl Guard(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

DeviceCopier::DeviceCopier(c10::Device device, bool non_blocking)
    : device_(device),
      non_blocking_(non_blocking),
      stream_(Guard(device).getStreamFromGlobalPool(device)) {}

DeviceCopier::Copy DeviceCopier::Begin(const Batch& batch) const {
  // The device's memory comes from this stream's share of the allocator, and
  // page-locked memory is kept until this stream has read it.
  const c10::StreamGuard guard(stream_);
  Batch copied = {ToDevice(batch.data), ToDevice(batch.target)};
  c10::Event done(device_.type());
  done.record(stream_);
  return {std::move(copied), std::move(done)};
}

at::Tensor DeviceCopier::ToDevice(const at::Tensor& tensor) const {
  return tensor.to(device_, non_blocking_);
}

Batch DeviceCopier::Use(Copy copy) const {
  const c10::Stream current = Guard(device_).getStream(device_);
  copy.done_.block(current);
  copy.batch_.data.record_stream(current);
  copy.batch_.target.record_stream(current);
  return std::move(copy.batch_);
}

}  // namespace rankwise

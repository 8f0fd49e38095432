#include "parallel/pipeline/wire_format.h"

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/empty.h"
#include "c10/core/MemoryFormat.h"
#include "c10/util/accumulate.h"

namespace rankwise {
namespace {

// Not all the same, which normalisation would turn into zeros, and none so
// small that computing with it is slow.
at::Tensor SmallNumbers(const std::vector<int64_t>& shape,
                        const at::TensorOptions& options) {
  constexpr double kLargest = 1e-3;
  return at::arange(c10::multiply_integers(shape), options.dtype(at::kFloat))
      .sin_()
      .mul_(kLargest)
      .view(shape)
      .to(options);
}

}  // namespace

at::Tensor ToWire(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach();
  if (plain.dim() != 4) return plain.contiguous();
  return plain.contiguous(at::MemoryFormat::ChannelsLast).permute({0, 2, 3, 1});
}

at::Tensor FromWire(const at::Tensor& wire) {
  return wire.dim() == 4 ? wire.permute({0, 3, 1, 2}) : wire;
}

std::vector<int64_t> WireShape(std::vector<int64_t> shape) {
  if (shape.size() != 4) return shape;
  return {shape[0], shape[2], shape[3], shape[1]};
}

at::Tensor WireBuffers::Take(const std::vector<int64_t>& wire_shape,
                             at::ScalarType type) {
  const auto options = at::TensorOptions(type).device(device_);
  if (!device_.is_cpu() && !filled_) return at::empty(wire_shape, options);
  for (const at::Tensor& buffer : buffers_) {
    // One reference is the pool's: to the tensor, and the tensor's to the
    // bytes. Views and saved tensors add to one or the other.
    const bool is_free =
        buffer.use_count() == 1 && buffer.storage().use_count() == 1;
    if (is_free && buffer.scalar_type() == type && buffer.sizes() == wire_shape)
      return buffer;
  }
  buffers_.push_back(filled_ ? SmallNumbers(wire_shape, options)
                             : at::empty(wire_shape, options));
  return buffers_.back();
}

}  // namespace rankwise

// Casts tensors as enabled autocast does.
#ifndef RANKWISE_PARALLEL_AUTOGRAD_AUTOCAST_H_
#define RANKWISE_PARALLEL_AUTOGRAD_AUTOCAST_H_

#include "ATen/autocast_mode.h"
#include "ATen/core/Tensor.h"

namespace rankwise {

// Returns the type in which matrix products such as at::linear compute `x`.
inline at::ScalarType AutocastType(const at::Tensor& x) {
  const c10::DeviceType device = x.device().type();
  return at::autocast::is_autocast_enabled(device)
             ? at::autocast::get_autocast_dtype(device)
             : x.scalar_type();
}

// Casts `x` to AutocastType(x); an undefined `x` stays undefined.
// Differentiable; the cast of a parameter is cached.
inline at::Tensor CastByAutocast(const at::Tensor& x) {
  if (!x.defined()) return x;
  const c10::DeviceType device = x.device().type();
  if (!at::autocast::is_autocast_enabled(device)) return x;
  return at::autocast::cached_cast(AutocastType(x), x, device);
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_AUTOGRAD_AUTOCAST_H_

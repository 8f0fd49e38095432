#ifndef RANKWISE_TRAINERS_LAYERS_VALUES_H_
#define RANKWISE_TRAINERS_LAYERS_VALUES_H_

#include <torch/types.h>

namespace rankwise {

// Returns a pointer to a tensor's first value, as loops read and write it: T
// may be another type of the same size, such as bf16's bits.
template <typename T>
T* Values(const torch::Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_VALUES_H_

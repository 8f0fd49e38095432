// Stores values other than tensors for the backward of an autograd function.
#ifndef RANKWISE_PARALLEL_AUTOGRAD_SAVED_VALUE_H_
#define RANKWISE_PARALLEL_AUTOGRAD_SAVED_VALUE_H_

#include <typeinfo>
#include <utility>

#include "ATen/core/ivalue.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {

template <typename T>
struct ValueHolder : torch::CustomClassHolder {
  explicit ValueHolder(T any_value) : value(std::move(any_value)) {}
  const T value;
};

// Stores `value` in `ctx`, one value per type.
template <typename T>
void SaveValue(torch::autograd::AutogradContext& ctx, T value) {
  ctx.saved_data[typeid(T).name()] = c10::IValue::make_capsule(
      c10::make_intrusive<ValueHolder<T>>(std::move(value)));
}

// Returns the stored value of type T, which lives as long as `ctx`.
template <typename T>
const T& SavedValue(const torch::autograd::AutogradContext& ctx) {
  const auto holder = ctx.saved_data.at(typeid(T).name()).toCapsule();
  return static_cast<const ValueHolder<T>&>(*holder).value;
}

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_AUTOGRAD_SAVED_VALUE_H_

// Autograd functions without a second derivative.
#ifndef RANKWISE_PARALLEL_AUTOGRAD_ONCE_DIFFERENTIABLE_H_
#define RANKWISE_PARALLEL_AUTOGRAD_ONCE_DIFFERENTIABLE_H_

#include "ATen/core/grad_mode.h"
#include "c10/util/Exception.h"
#include "torch/csrc/autograd/custom_function.h"

namespace rankwise {

// Base of a function that computes its gradients by kernels or messages that
// autograd does not record. A backward with create_graph throws c10::Error with
// the function's name; otherwise second derivatives would silently lack terms.
// Instead of backward, `T` defines
//
//   static constexpr char kName[] = "TanhGelu";
//   static variable_list Gradients(AutogradContext* ctx,
//                                  const variable_list& gradients);
template <typename T>
class OnceDifferentiable : public torch::autograd::Function<T> {
 public:
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* ctx,
      const torch::autograd::variable_list& gradients) {
    TORCH_CHECK(!at::GradMode::is_enabled(), T::kName,
                " has no second derivative; call backward without "
                "create_graph");
    return T::Gradients(ctx, gradients);
  }
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_AUTOGRAD_ONCE_DIFFERENTIABLE_H_

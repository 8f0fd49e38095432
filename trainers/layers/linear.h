// A linear layer that uses the faster of two libraries for matrix products.
#ifndef RANKWISE_TRAINERS_LAYERS_LINEAR_H_
#define RANKWISE_TRAINERS_LAYERS_LINEAR_H_

#include <torch/types.h>

namespace rankwise {

// at::linear of x [rows, inputs], weight [outputs, inputs] and bias [outputs].
// In fp32 on a CPU it uses oneDNN's products, as ATen does in bf16, instead of
// MKL's, which for few rows take up to twice as long on an AMD EPYC and equally
// long on an Intel Xeon; they differ by rounding. Under autocast to bf16, if
// Bf16LinearSavesTime, it uses Bf16Linear, and gradients of weight and bias are
// not rounded to bf16, unlike ATen's. Otherwise it is at::linear. No second
// derivatives.
torch::Tensor Linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_LINEAR_H_

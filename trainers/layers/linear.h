// A linear layer by the faster of a CPU's two libraries for matrix products.
#ifndef RANKWISE_TRAINERS_LAYERS_LINEAR_H_
#define RANKWISE_TRAINERS_LAYERS_LINEAR_H_

#include <torch/types.h>

namespace rankwise {

// at::linear of x [rows, inputs], weight [outputs, inputs] and bias [outputs].
// In fp32 on a CPU its products are oneDNN's, as in ATen's bf16, and not MKL's,
// which takes up to twice as long for few rows on an AMD EPYC and as long on an
// Intel Xeon; they differ by rounding. Under autocast to bf16, where
// Bf16LinearSavesTime, they are ours, and gradients of weight and bias are not
// rounded to bf16, as ATen's are. Elsewhere it is at::linear. No second
// derivatives.
torch::Tensor Linear(const torch::Tensor& x, const torch::Tensor& weight,
                     const torch::Tensor& bias);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_LINEAR_H_

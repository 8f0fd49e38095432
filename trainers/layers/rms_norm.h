#ifndef RANKWISE_TRAINERS_LAYERS_RMS_NORM_H_
#define RANKWISE_TRAINERS_LAYERS_RMS_NORM_H_

#include <torch/types.h>

namespace rankwise {

// x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and
// Sennrich 2019, "Root Mean Square Layer Normalization", section 4): x [...,
// features], weight [features], to the shape of x. On a CPU, for fp32 and bf16,
// computed in fp32 and rounded once to the type of x or, under autocast,
// autocast's type, in which the next layer reads it; stores x and an fp32 value
// per row, and cannot be differentiated twice. Otherwise ATen's function, whose
// result has the type of x.
torch::Tensor RmsNorm(const torch::Tensor& x, const torch::Tensor& weight,
                      double epsilon);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_RMS_NORM_H_

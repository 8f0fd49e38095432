// The first layer of an image model in one pass over its batch in each
// direction: values between convolution and pooling stay in the cache.
#ifndef RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_
#define RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_

#include <torch/types.h>

#include "trainers/layers/instruction_set.h"

namespace rankwise {

// max_pool2d(relu(conv2d(x, weight, bias, padding=1)), 2): x [B, in, H, W],
// weight [out, in, 3, 3] and bias [out] to [B, out, H / 2, W / 2].
//
// On a CPU, if x is a batch of 3 channels and needs no gradient, its own loops
// compute it, and backward needs x, as cast by autocast, and one byte per
// output. Sums are in fp32, of products of values in autocast's type; they
// differ from ATen's only by rounding. `bf16_pairs`: use the CPU's dot products
// of bf16 pairs. Otherwise it is ReluMaxPool of at::conv2d. No second
// derivatives.
torch::Tensor ConvReluMaxPool(const torch::Tensor& x,
                              const torch::Tensor& weight,
                              const torch::Tensor& bias,
                              bool bf16_pairs = HasBf16Pairs());

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_

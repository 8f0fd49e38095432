// The first layer of an image model in one pass over its batch each way:
// between convolution and pooling nothing leaves the cache.
#ifndef RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_
#define RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_

#include <torch/types.h>

#include "trainers/layers/instruction_set.h"

namespace rankwise {

// max_pool2d(relu(conv2d(x, weight, bias, padding=1)), 2): x [B, in, H, W],
// weight [out, in, 3, 3] and bias [out] to [B, out, H / 2, W / 2].
//
// On a CPU, where x is a batch of 3 channels and needs no gradient, it is
// computed here, and backward needs x, as autocast casts it, and one byte per
// output. Its sums are in fp32, of products of values in the type that autocast
// asks for; they differ from ATen's by rounding alone. `bf16_pairs`: products
// of bf16 are taken in pairs, for which the CPU has an instruction. All else is
// ReluMaxPool of at::conv2d. No second derivatives.
torch::Tensor ConvReluMaxPool(const torch::Tensor& x,
                              const torch::Tensor& weight,
                              const torch::Tensor& bias,
                              bool bf16_pairs = HasBf16Pairs());

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_CONV_RELU_MAX_POOL_H_

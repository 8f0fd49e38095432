// ReLU and 2x2 max pooling in one pass over memory in each direction; ATen
// needs two passes forward and five backward.
#ifndef RANKWISE_TRAINERS_LAYERS_RELU_MAX_POOL_H_
#define RANKWISE_TRAINERS_LAYERS_RELU_MAX_POOL_H_

#include <torch/types.h>

namespace rankwise {

// max_pool2d(relu(x), 2): x [B, C, H, W] to [B, C, H / 2, W / 2], with ATen's
// results and gradients bit for bit, except for the bits of a NaN. On a CPU,
// for fp32, bf16 and fp16 with even H and W, the output is channels-last and
// backward needs one byte per output; otherwise ATen's functions run, which
// overwrite and store x. No second derivatives.
torch::Tensor ReluMaxPool(const torch::Tensor& x);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_RELU_MAX_POOL_H_

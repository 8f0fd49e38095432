#ifndef RANKWISE_TRAINERS_LAYERS_SWIGLU_H_
#define RANKWISE_TRAINERS_LAYERS_SWIGLU_H_

#include <torch/types.h>

namespace rankwise {

// silu(gate) * up, where silu(x) = x / (1 + e^-x) (Shazeer 2020, "GLU Variants
// Improve Transformer", equation 6): x [..., 2 * n], each row's gate, then up,
// to [..., n]. Stores only x, on any device. On a CPU, fp32 and bf16 are
// computed in fp32 and rounded once. Cannot be differentiated twice.
torch::Tensor SwiGlu(const torch::Tensor& x);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_SWIGLU_H_

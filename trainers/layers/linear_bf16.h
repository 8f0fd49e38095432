// The products of a linear layer in bf16, with weights and gradients in fp32.
// Weights are rounded a tile at a time, into the cache, while the previous tile
// is multiplied: neither they nor their gradient pass through memory in bf16,
// unlike under ATen's autocast, which also rounds that gradient. Every sum adds
// along the inner dimension in order, for any number of threads.
#ifndef RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_
#define RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_

#include <torch/types.h>

#include <cstdint>

namespace rankwise {

// Returns whether the functions below support these sizes on this CPU, which
// must have bf16 dot products of vectors.
bool HasBf16Linear(int64_t rows, int64_t inputs, int64_t outputs);

// Returns whether they also save time: with many weights, and on a CPU without
// dot products of tiles (AMX), which ATen's products use.
bool Bf16LinearSavesTime(int64_t rows, int64_t inputs, int64_t outputs);

// All contiguous: x [rows, inputs] and dy [rows, outputs] in bf16, weight
// [outputs, inputs] and bias [outputs] in fp32. Returns y [rows, outputs],
// bf16.
torch::Tensor Bf16Linear(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias);

// Returns dx [rows, inputs] in bf16.
torch::Tensor Bf16LinearInputGradient(const torch::Tensor& dy,
                                      const torch::Tensor& weight);

// Returns the gradient of weight in fp32.
torch::Tensor Bf16LinearWeightGradient(const torch::Tensor& dy,
                                       const torch::Tensor& x);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_

// The products of a linear layer in bf16, of weights and to gradients in fp32.
// Weights are rounded a tile at a time, into the cache, while the tile before
// is multiplied: neither they nor their gradient go through memory in bf16, as
// under ATen's autocast, which also rounds that gradient. Every sum is that of
// the inner dimension in its order, whatever the number of threads.
#ifndef RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_
#define RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_

#include <torch/types.h>

#include <cstdint>

namespace rankwise {

// Whether the functions below take these sizes on this CPU, which needs bf16
// dot products of vectors.
bool HasBf16Linear(int64_t rows, int64_t inputs, int64_t outputs);

// Whether they also save time: with many weights, and on a CPU without dot
// products of tiles (AMX), which ATen's products use.
bool Bf16LinearSavesTime(int64_t rows, int64_t inputs, int64_t outputs);

// All contiguous: x [rows, inputs] and dy [rows, outputs] in bf16, weight
// [outputs, inputs] and bias [outputs] in fp32. y [rows, outputs] in bf16:
torch::Tensor Bf16Linear(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias);

// dx [rows, inputs] in bf16.
torch::Tensor Bf16LinearInputGradient(const torch::Tensor& dy,
                                      const torch::Tensor& weight);

// In fp32.
torch::Tensor Bf16LinearWeightGradient(const torch::Tensor& dy,
                                       const torch::Tensor& x);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_LINEAR_BF16_H_

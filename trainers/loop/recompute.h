// Forwards that store only their input for backward (Chen et al. 2016,
// "Training Deep Nets with Sublinear Memory Cost").
#ifndef RANKWISE_TRAINERS_LOOP_RECOMPUTE_H_
#define RANKWISE_TRAINERS_LOOP_RECOMPUTE_H_

#include <torch/types.h>

#include <vector>

#include "trainers/loop/config.h"
#include "trainers/models/model.h"

namespace rankwise {

// Returns forward(x), which backward recomputes in `precision`; `forward` must
// give the same result again. It may change `buffers`, which the second run
// restores. If `x` needs no gradient, such as a model's input, nothing is
// recomputed, since backward would not be called.
torch::Tensor Recomputed(const Model::LayerForward& forward,
                         const torch::Tensor& x, Precision precision,
                         std::vector<torch::Tensor> buffers);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_RECOMPUTE_H_

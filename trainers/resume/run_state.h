// The tensors of a run as its checkpoints and exports name them: which block of
// each full tensor a rank holds, and how full tensors are assembled.
#ifndef RANKWISE_TRAINERS_RESUME_RUN_STATE_H_
#define RANKWISE_TRAINERS_RESUME_RUN_STATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint_file.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// Prefix of the names of the model's own tensors in a checkpoint.
inline constexpr char kModelPrefix[] = "model.";

struct HeldBlock {
  TensorBlock block;   // live
  bool saved = false;  // by this rank: the first of those that hold it
};

// The blocks that this rank holds of the model ("model.fc1.weight") and of its
// optimizer's state ("optimizer.exp_avg.fc1.weight"), under the names and in
// the shapes of a single process. A copy of a tied weight is a block of the
// owner's tensor.
std::vector<HeldBlock> HeldBlocks(const Worker& worker, const Model& model,
                                  const Optimizer& optimizer,
                                  const ShardedState& sharded);

// Whether this rank saves any of these blocks.
bool SavesState(const Worker& worker, const ShardedState& sharded);

// The full parameters and buffers of this rank's layers, in file order, for the
// ranks for which SavesState() is true. Each makes all values in that order,
// which is collective along dp and tp; only the first rank along both gets
// them.
absl::StatusOr<std::vector<TensorSource>> WholeTensors(
    const Worker& worker, const Model& model, const ShardedState& sharded);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RUN_STATE_H_

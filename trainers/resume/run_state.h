// The names of a run's tensors in its checkpoints and exports: the blocks of
// full tensors that a rank holds, and the assembly of full tensors.
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
  bool saved = false;  // by this rank, the first of those that hold it
};

// Returns the blocks that this rank holds of the model ("model.fc1.weight") and
// of its optimizer's state ("optimizer.exp_avg.fc1.weight"), with the names and
// shapes of a single process. Copies of tied weights are blocks of the owner's.
std::vector<HeldBlock> HeldBlocks(const Worker& worker, const Model& model,
                                  const Optimizer& optimizer,
                                  const ShardedState& sharded);

// Returns whether this rank saves any of these blocks.
bool SavesState(const Worker& worker, const ShardedState& sharded);

// Returns the full parameters and buffers of this rank's layers, in file order,
// for the ranks for which SavesState() is true. Each rank must request all
// values in that order, which is collective along dp and tp; only the first
// rank along both gets them.
absl::StatusOr<std::vector<TensorSource>> WholeTensors(
    const Worker& worker, const Model& model, const ShardedState& sharded);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RUN_STATE_H_

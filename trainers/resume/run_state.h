// The tensors of a run as its checkpoints and exports name them: which block of
// each whole tensor a rank has, and how a whole one is put together.
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

struct HeldBlock {
  TensorBlock block;   // live
  bool saved = false;  // by this rank: the first of those that have it
};

// What this rank has of the model ("model.fc1.weight") and of what its
// optimizer keeps ("optimizer.exp_avg.fc1.weight"), under the names and in the
// shapes of a single process. A copy of a tied weight is a block of its
// owner's.
std::vector<HeldBlock> HeldBlocks(const Worker& worker, const Model& model,
                                  const Optimizer& optimizer,
                                  const ShardedState& sharded);

// Whether this rank saves any of them.
bool SavesState(const Worker& worker, const ShardedState& sharded);

// The parameters and buffers of the layers here, whole, in the order of a file,
// for the ranks that SavesState: all make the values one after another, which
// is collective along dp and tp, but only the first along both gets them.
absl::StatusOr<std::vector<TensorSource>> WholeTensors(
    const Worker& worker, const Model& model, const ShardedState& sharded);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_RUN_STATE_H_

// Training that begins with given weights.
#ifndef RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_
#define RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_

#include "absl/status/status.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// Fills the parameters that this rank holds, of a llama, from the Hugging Face
// folder `config.init_from`; each rank reads only its own part. Collective: if
// a rank fails, all return the same error, with the flag; as from
// HuggingFaceWeights.
absl::Status LoadInitialWeights(const TrainConfig& config, const Worker& worker,
                                const Model& model, const Optimizer& optimizer,
                                const ShardedState& sharded);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_

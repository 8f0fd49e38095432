// Loads the initial weights that --init_from names.
#ifndef RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_
#define RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_

#include "absl/status/status.h"
#include "trainers/loop/config.h"
#include "trainers/loop/optimizer.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/resume/sharded_state.h"

namespace rankwise {

// Fills this rank's parameters of a llama from the Hugging Face folder
// `config.init_from`; each rank reads only its own part. Collective: if a rank
// fails, all return the same error, one of HuggingFaceWeights' with the flag.
absl::Status LoadInitialWeights(const TrainConfig& config, const Worker& worker,
                                const Model& model, const Optimizer& optimizer,
                                const ShardedState& sharded);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_INITIAL_WEIGHTS_H_

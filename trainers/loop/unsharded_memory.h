// The memory of the buffers of sharded data parallelism, without tensors.
#ifndef RANKWISE_TRAINERS_LOOP_UNSHARDED_MEMORY_H_
#define RANKWISE_TRAINERS_LOOP_UNSHARDED_MEMORY_H_

#include <cstdint>

#include "trainers/loop/model_placement.h"
#include "trainers/models/model.h"

namespace rankwise {

// The most bytes that gathered parameters, the all-gathers' outputs, whole
// gradients and the reduce-scatters' inputs take at one time in a step of
// `micro_batches`: what FullyShardedDataParallel::unsharded_bytes() measures.
// Runs the engine's order (parallel/sharded/order) over the units that
// ShardModel makes. 0 where nothing is sharded.
int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_UNSHARDED_MEMORY_H_

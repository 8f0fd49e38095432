// The parameters that a rank holds, and the buffers of sharded data parallelism
// for them, without tensors.
#ifndef RANKWISE_TRAINERS_LOOP_UNSHARDED_MEMORY_H_
#define RANKWISE_TRAINERS_LOOP_UNSHARDED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "trainers/loop/model_placement.h"
#include "trainers/models/model.h"

namespace rankwise {

// Of a layer on a rank that holds the layers of `placement`: its parameters,
// and copies of weights that it shares with another rank's; none if it is not
// held.
ParameterShapes ShapesHere(const ModelSpec& model,
                           const ModelPlacement& placement, size_t layer);

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

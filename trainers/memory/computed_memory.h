// What a layout takes of each rank's memory, by formula: before anything is
// allocated. docs/memory.md says how close it comes.
#ifndef RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_
#define RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_

#include <c10/core/DeviceType.h>

#include <cstdint>

#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/model_placement.h"
#include "trainers/models/model.h"

namespace rankwise {

// Of a rank on a device of type `device` with the layers of `placement`,
// `model` being made for its split. Parameters and gradients are fp32, also
// under autocast, but for those that sharded data parallelism gathers in bf16;
// Adam has two fp32 moments of each and a count per tensor. Of ranks that share
// a tensor unevenly, the one with most.
MemoryParts ComputeMemory(const TrainConfig& config, c10::DeviceType device,
                          const ModelSpec& model,
                          const ModelPlacement& placement);

// How forward stores what it keeps (LayerSpec::kept).
KeptTypes KeptTypesOf(Precision precision, c10::DeviceType device,
                      bool has_bf16_parameters);

// What forward of the layers of `range` keeps for the backward of one
// micro-batch of config.data.batch_size examples, the loss among it where the
// range ends the model (LayerSpec::kept). Of bf16 parameters autocast makes no
// copies.
int64_t ComputeActivations(const TrainConfig& config, c10::DeviceType device,
                           const ModelSpec& model, const LayerRange& range,
                           bool has_bf16_parameters = false);

// The most bytes that gathered parameters, the all-gathers' outputs, whole
// gradients and the reduce-scatters' inputs take at one time in a step of
// `micro_batches`: what FullyShardedDataParallel::unsharded_bytes() measures.
// Runs the engine's order (parallel/sharded/order) over the units that
// ShardModel makes. 0 where nothing is sharded.
int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_

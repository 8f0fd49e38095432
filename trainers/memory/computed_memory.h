// The memory of each rank under a layout, computed by formula before anything
// is allocated. docs/memory.md reports its accuracy.
#ifndef RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_
#define RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_

#include <c10/core/DeviceType.h>

#include <cstdint>

#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/model_placement.h"
#include "trainers/models/model.h"

namespace rankwise {

// Returns the memory of a rank on a device of type `device` with the layers of
// `placement`; `model` must have been made for its split. Parameters and
// gradients are fp32, even under autocast, except those that sharded data
// parallelism gathers in bf16; Adam has two fp32 moments per parameter and a
// count per tensor. If ranks share a tensor unevenly, counts the largest share.
MemoryParts ComputeMemory(const TrainConfig& config, c10::DeviceType device,
                          const ModelSpec& model,
                          const ModelPlacement& placement);

// Returns the types in which forward stores activations (LayerSpec::kept).
KeptTypes KeptTypesOf(Precision precision, c10::DeviceType device,
                      bool has_bf16_parameters);

// Returns the bytes that forward of the layers of `range` stores for the
// backward of one micro-batch of config.data.batch_size examples, with the loss
// if the range ends the model. Autocast makes no copies of bf16 parameters.
int64_t ComputeActivations(const TrainConfig& config, c10::DeviceType device,
                           const ModelSpec& model, const LayerRange& range,
                           bool has_bf16_parameters = false);

// Returns the peak bytes of gathered parameters, all-gather outputs, full
// gradients and reduce-scatter inputs in a step of `micro_batches`, as measured
// by FullyShardedDataParallel::unsharded_bytes(). Runs the engine's order
// (parallel/sharded/order) over ShardModel's units. 0 without sharding.
int64_t ComputeUnsharded(const ModelSpec& model,
                         const ModelPlacement& placement,
                         int64_t micro_batches);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MEMORY_COMPUTED_MEMORY_H_

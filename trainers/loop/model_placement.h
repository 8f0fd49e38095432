// The part of a model that a rank holds.
#ifndef RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_
#define RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/sharded/order/unit_passes.h"
#include "parallel/sharded/sharding.h"
#include "trainers/models/model.h"

namespace rankwise {

// What sharded data parallelism divides among `ranks` (Rajbhandari et al. 2020,
// "ZeRO", section 5), every tensor along its first dimension: the optimizer's
// state from stage 1 on, gradients from 2, parameters from 3.
struct Sharding {
  ShardingConfig config = {.stage = 0};
  std::string units = "block";  // as in ZeroConfig
  int ranks = 1;
  bool recompute = false;  // layers keep their input only

  // Parameters are gathered and used in 16 bits.
  bool has_bf16() const {
    return config.stage > 0 && config.parameter_type.has_value();
  }
};

// By default all of the model.
struct ModelPlacement {
  std::vector<LayerRange> layers;    // empty: all
  std::vector<c10::Device> devices;  // one per layer; empty: the worker's
  // Has the model's first or last layer. Others count examples, but need not
  // see them.
  bool reads_data = true;
  Sharding sharding;
  // What a pipeline's rank runs in a step, in order; sections are layers.
  // Empty: forward and backward of all layers for each micro-batch.
  std::vector<SectionPass> passes;
  // Of the whole model in one process, which divide each micro-batch among
  // them; the memory is that of the first.
  int replicas = 1;
  // What the micro-batches under way keep for backward, computed; none: there
  // is one, through all layers.
  std::optional<int64_t> activation_bytes;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

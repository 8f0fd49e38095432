// The part of a model that a rank holds.
#ifndef RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_
#define RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "trainers/models/model.h"

namespace rankwise {

// What sharded data parallelism divides among `ranks` (Rajbhandari et al. 2020,
// "ZeRO", section 5), every tensor along its first dimension: the optimizer's
// state from stage 1 on, gradients from 2, parameters from 3.
struct Sharding {
  int stage = 0;
  int ranks = 1;
  // Buffers of gathered parameters and gradients, the most at one time.
  int64_t unsharded_bytes = 0;
};

// By default all of the model.
struct ModelPlacement {
  std::vector<LayerRange> layers;    // empty: all
  std::vector<c10::Device> devices;  // one per layer; empty: the worker's
  // Has the model's first or last layer. Others count examples, but need not
  // see them.
  bool reads_data = true;
  Sharding sharding;
  // What the micro-batches under way keep for backward, computed; none: there
  // is one, through all layers.
  std::optional<int64_t> activation_bytes;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

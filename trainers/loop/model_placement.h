// The part of a model that a rank holds.
#ifndef RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_
#define RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "parallel/sharded/order/unit_passes.h"
#include "parallel/sharded/sharding.h"
#include "trainers/models/model.h"

namespace rankwise {

// Returns the MiB per unit if `units` (ZeroConfig) is a number.
inline std::optional<double> UnitMebibytes(const std::string& units) {
  constexpr double kMostMebibytes = 1 << 20;
  double mebibytes = 0;
  const bool fits = absl::SimpleAtod(units, &mebibytes) && mebibytes > 0 &&
                    mebibytes <= kMostMebibytes;
  return fits ? std::optional(mebibytes) : std::nullopt;
}

// Returns whether `units` is valid: "block", "layer" or a number of MiB.
inline bool IsUnits(const std::string& units) {
  return units == "block" || units == "layer" ||
         UnitMebibytes(units).has_value();
}

// Sharding by sharded data parallelism among `ranks` (Rajbhandari et al. 2020,
// "ZeRO", section 5), of every tensor along its first dimension: the optimizer
// state from stage 1 on, gradients from 2, parameters from 3.
struct Sharding {
  ShardingConfig config = {.stage = 0};
  std::string units = "block";  // as in ZeroConfig
  int ranks = 1;
  bool recompute = false;  // layers store only their input

  // Returns whether parameters are gathered and used in 16 bits.
  bool has_bf16() const {
    return config.stage > 0 && config.parameter_type.has_value();
  }
};

// By default the whole model.
struct ModelPlacement {
  std::vector<LayerRange> layers;    // if empty, all layers
  std::vector<c10::Device> devices;  // one per layer; if empty, the worker's
  // Holds the model's first or last layer. Other ranks only count examples.
  bool reads_data = true;
  Sharding sharding;
  // Passes of a pipeline's rank in one step, in order; sections are layers. If
  // empty, forward and backward of all layers for each micro-batch.
  std::vector<SectionPass> passes;
  // Replicas of the whole model in one process, among which each micro-batch is
  // divided; the computed memory is the first replica's.
  int replicas = 1;
  // Computed bytes that the micro-batches in flight store for backward; nullopt
  // for one micro-batch through all layers.
  std::optional<int64_t> activation_bytes;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_MODEL_PLACEMENT_H_

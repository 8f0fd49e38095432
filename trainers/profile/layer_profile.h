// How long each layer of a model takes, next to what the device can do: a
// roofline per layer (Williams, Waterman and Patterson 2009).
#ifndef RANKWISE_TRAINERS_PROFILE_LAYER_PROFILE_H_
#define RANKWISE_TRAINERS_PROFILE_LAYER_PROFILE_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "records/record.h"
#include "trainers/loop/config.h"
#include "trainers/loop/objective.h"
#include "trainers/models/model.h"
#include "trainers/peak/device_peak.h"

namespace rankwise {

struct ProfileConfig {
  int warmup_passes = 3;
  int passes = 20;
  Precision precision = Precision::kFp32;
};

// A model, and how its loss is computed.
struct ProfiledModel {
  const ModelSpec& spec;
  Model& model;  // of `spec`, all of it, on one device
  const Objective& objective;
};

// One record per layer, of forward and backward of the whole model over
// `batch`. The host waits for the device after every layer. A layer's backward
// is what runs between the gradients of its output and of its input. Changes no
// weight, and leaves no gradients. Throws what the passes throw.
std::vector<LayerRecord> ProfileLayers(const ProfiledModel& profiled,
                                       const Batch& batch,
                                       const ProfileConfig& config);

// A layer's medians in one direction, and how they compare.
struct LayerRoofline {
  double seconds = 0;  // of a pass
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // The least time that the peak allows, and by which of its two limits:
  // "compute" or "memory"; 0 and "" where the peak is not known.
  double limit_seconds = 0;
  std::string bound;
};

LayerRoofline RooflineOf(absl::Span<const double> seconds, double flops,
                         double bytes, const DevicePeak& peak);

// A table for the console: a row per layer and direction, and their sum.
std::string LayerTable(absl::Span<const LayerRecord> layers,
                       const DevicePeak& peak);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PROFILE_LAYER_PROFILE_H_

// The time of each layer of a model next to the device's limits: a roofline per
// layer (Williams, Waterman and Patterson 2009).
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

// A model and its loss.
struct ProfiledModel {
  const ModelSpec& spec;
  Model& model;  // the whole model of `spec`, on one device
  const Objective& objective;
};

// Returns one record per layer, for forward and backward of the whole model
// over `batch`. The host waits for the device after every layer. A layer's
// backward is the time between the gradients of its output and of its input.
// Changes no weight, leaves no gradients. Throws the passes' exceptions.
std::vector<LayerRecord> ProfileLayers(const ProfiledModel& profiled,
                                       const Batch& batch,
                                       const ProfileConfig& config);

// A layer's medians in one direction, and their comparison with the peak.
struct LayerRoofline {
  double seconds = 0;  // of a pass
  double flops_per_second = 0;
  double bytes_per_second = 0;
  // The least time that the peak allows, and the limit that determines it:
  // "compute" or "memory"; 0 and "" if the peak is unknown.
  double limit_seconds = 0;
  std::string bound;
};

LayerRoofline RooflineOf(absl::Span<const double> seconds, double flops,
                         double bytes, const DevicePeak& peak);

// Returns a table for the console: a row per layer and direction, and a sum.
std::string LayerTable(absl::Span<const LayerRecord> layers,
                       const DevicePeak& peak);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_PROFILE_LAYER_PROFILE_H_

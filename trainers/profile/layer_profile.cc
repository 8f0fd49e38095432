#include "trainers/profile/layer_profile.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/stats/statistics.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "trainers/loop/step_bytes.h"
#include "trainers/models/layer_bytes.h"

namespace rankwise {
namespace {

// Waits until the device has finished all submitted work; returns the time.
double SecondsWhenDone(c10::Device device) {
  DeviceEvent(device).Wait();
  return SteadySeconds();
}

// Times the layers of passes during its lifetime.
class LayerClock {
 public:
  LayerClock(Model& model, c10::Device device)
      : model_(model),
        device_(device),
        forward_(model.num_layers()),
        output_gradient_(model.num_layers()) {
    model_.SetRunLayer(
        [this](size_t layer, const Model::LayerForward& forward,
               const torch::Tensor& x) { return Run(layer, forward, x); },
        /*collective=*/false);
  }
  ~LayerClock() { model_.SetRunLayer(nullptr, /*collective=*/false); }
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;

  double forward_seconds(size_t layer) const { return forward_[layer]; }
  // Call after backward, which ended at `end_seconds`.
  double backward_seconds(size_t layer, double end_seconds) const {
    return (layer == 0 ? end_seconds : output_gradient_[layer - 1]) -
           output_gradient_[layer];
  }

 private:
  torch::Tensor Run(size_t layer, const Model::LayerForward& forward,
                    const torch::Tensor& x) {
    const double start = SecondsWhenDone(device_);
    torch::Tensor output = forward(x);
    forward_[layer] = SecondsWhenDone(device_) - start;
    output.register_hook([this, layer](const torch::Tensor&) {
      output_gradient_[layer] = SecondsWhenDone(device_);
    });
    return output;
  }

  Model& model_;
  const c10::Device device_;
  std::vector<double> forward_;
  std::vector<double> output_gradient_;  // time at which it was computed
};

// Returns records with all fields that do not depend on the passes.
std::vector<LayerRecord> Describe(const ModelSpec& spec, int64_t examples,
                                  Precision precision) {
  std::vector<LayerRecord> records;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const auto count = static_cast<double>(examples);
    const LayerBytes bytes = BytesOf(spec, layer, count, ValueBytes(precision));
    LayerRecord record;
    record.layer = static_cast<int64_t>(layer);
    record.name = spec.layers[layer].name;
    record.examples = examples;
    record.forward_flops = count * spec.layers[layer].flops;
    // Gradients of the weights and, except for the first layer, the input.
    record.backward_flops = (layer == 0 ? 1 : 2) * record.forward_flops;
    record.forward_bytes = bytes.forward;
    record.backward_bytes = bytes.backward;
    records.push_back(record);
  }
  return records;
}

// A share above 100 % shows that the measured limit was too low.
std::string ShareText(double share) {
  return share > 1 ? "> 100 %" : absl::StrFormat("%.1f %%", 100 * share);
}

std::string Row(const std::string& name, const char* direction,
                const LayerRoofline& roofline) {
  std::string row = absl::StrFormat(
      "%-12s %-8s %9.3f %9.1f %8.2f", name, direction, 1e3 * roofline.seconds,
      1e-9 * roofline.flops_per_second, 1e-9 * roofline.bytes_per_second);
  if (!roofline.bound.empty()) {
    absl::StrAppendFormat(&row, "  %-7s %8.3f %8s", roofline.bound,
                          1e3 * roofline.limit_seconds,
                          ShareText(roofline.limit_seconds / roofline.seconds));
  }
  return row + "\n";
}

}  // namespace

std::vector<LayerRecord> ProfileLayers(const ProfiledModel& profiled,
                                       const Batch& batch,
                                       const ProfileConfig& config) {
  std::vector<LayerRecord> records =
      Describe(profiled.spec, batch.target.size(0), config.precision);
  const c10::Device device = batch.data.device();
  profiled.model.train();
  const LayerClock clock(profiled.model, device);
  for (int pass = 0; pass < config.warmup_passes + config.passes; ++pass) {
    const torch::Tensor loss = profiled.objective.LossOf(
        profiled.objective.Output(batch.data), batch.target);
    loss.backward();
    const double end = SecondsWhenDone(device);
    profiled.model.zero_grad(/*set_to_none=*/true);
    if (pass < config.warmup_passes) continue;
    for (size_t layer = 0; layer < records.size(); ++layer) {
      records[layer].forward_seconds.push_back(clock.forward_seconds(layer));
      records[layer].backward_seconds.push_back(
          clock.backward_seconds(layer, end));
    }
  }
  return records;
}

LayerRoofline RooflineOf(absl::Span<const double> seconds, double flops,
                         double bytes, const DevicePeak& peak) {
  LayerRoofline roofline;
  roofline.seconds = Median(seconds);
  roofline.flops_per_second = flops / roofline.seconds;
  roofline.bytes_per_second = bytes / roofline.seconds;
  if (peak.flops_per_second <= 0 || peak.bytes_per_second <= 0) return roofline;
  const double compute = flops / peak.flops_per_second;
  const double memory = bytes / peak.bytes_per_second;
  roofline.limit_seconds = std::max(compute, memory);
  roofline.bound = compute >= memory ? "compute" : "memory";
  return roofline;
}

std::string LayerTable(absl::Span<const LayerRecord> layers,
                       const DevicePeak& peak) {
  std::string table =
      "layer        pass            ms   GFLOP/s     GB/s  bound    limit ms "
      "of limit\n";
  double seconds = 0, limit = 0;
  for (const LayerRecord& layer : layers) {
    const LayerRoofline forward = RooflineOf(
        layer.forward_seconds, layer.forward_flops, layer.forward_bytes, peak);
    const LayerRoofline backward =
        RooflineOf(layer.backward_seconds, layer.backward_flops,
                   layer.backward_bytes, peak);
    absl::StrAppend(&table, Row(layer.name, "forward", forward),
                    Row(layer.name, "backward", backward));
    seconds += forward.seconds + backward.seconds;
    limit += forward.limit_seconds + backward.limit_seconds;
  }
  absl::StrAppendFormat(&table, "all layers: %.3f ms", 1e3 * seconds);
  if (limit > 0) {
    absl::StrAppendFormat(&table, ", roofline limit %.3f ms: %s of the limit",
                          1e3 * limit, ShareText(limit / seconds));
  }
  return table;
}

}  // namespace rankwise

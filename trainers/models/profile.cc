#include "trainers/models/profile.h"

#include <ATen/ops/ones_like.h>
#include <c10/util/Exception.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "trainers/observe/median.h"

namespace rankwise {
namespace {

// When the device has done its work.
double SecondsWhenIdle(c10::Device device) {
  SynchronizeDevice(device);
  return SteadySeconds();
}

// Profiles layer `layer` on `input`; sets `output` to what comes out, detached.
LayerProfile ProfileLayer(Model& model, size_t layer,
                          const torch::Tensor& input, int repetitions,
                          torch::Tensor* output) {
  std::vector<double> forward, backward;
  for (int i = -1; i < repetitions; ++i) {
    torch::Tensor x = input.detach();
    // As in training: nobody asks for the gradient of the model's own input.
    x.requires_grad_(layer > 0);
    const double start = SecondsWhenIdle(x.device());
    const torch::Tensor y = model.Forward(x, {layer, layer + 1});
    const double middle = SecondsWhenIdle(y.device());
    if (y.requires_grad()) y.backward(at::ones_like(y));
    const double end = SecondsWhenIdle(y.device());
    if (i < 0) continue;
    forward.push_back(middle - start);
    backward.push_back(y.requires_grad() ? end - middle : 0);
    *output = y.detach();
  }
  return {Median(forward), Median(backward)};
}

std::string Names(const ModelSpec& spec, const LayerRange& stage) {
  const std::string& first = spec.layers[stage.begin].name;
  const std::string& last = spec.layers[stage.end - 1].name;
  return stage.end - stage.begin == 1 ? first
                                      : absl::StrCat(first, " .. ", last);
}

}  // namespace

std::vector<LayerProfile> ProfileLayers(Model& model,
                                        const torch::Tensor& batch,
                                        int repetitions) {
  TORCH_CHECK(repetitions >= 1, "ProfileLayers: repetitions must be >= 1");
  std::vector<LayerProfile> profiles;
  torch::Tensor x = batch;
  for (size_t layer = 0; layer < model.num_layers(); ++layer) {
    torch::Tensor output;
    profiles.push_back(ProfileLayer(model, layer, x, repetitions, &output));
    x = output;
  }
  model.zero_grad(/*set_to_none=*/true);
  return profiles;
}

int64_t OutputBytes(const ModelSpec& spec, const LayerRange& stage,
                    int64_t examples, torch::ScalarType type) {
  int64_t bytes = examples * static_cast<int64_t>(c10::elementSize(type));
  for (const int64_t size : spec.layers[stage.end - 1].output_shape)
    bytes *= size;
  return bytes;
}

std::string StageTable(const ModelSpec& spec,
                       absl::Span<const LayerRange> stages,
                       int64_t micro_batch_examples,
                       absl::Span<const LayerProfile> profile,
                       absl::Span<const torch::ScalarType> output_types) {
  std::string table =
      absl::StrFormat("%5s  %-22s %12s %14s %13s", "stage", "layers",
                      "parameters", "output_bytes", "forward_flops");
  if (!profile.empty())
    absl::StrAppendFormat(&table, " %10s %11s", "forward_ms", "backward_ms");
  const double examples = static_cast<double>(micro_batch_examples);
  for (size_t i = 0; i < stages.size(); ++i) {
    int64_t parameters = 0;
    double flops = 0, forward = 0, backward = 0;
    for (size_t layer = stages[i].begin; layer < stages[i].end; ++layer) {
      parameters += spec.layers[layer].parameters;
      flops += spec.layers[layer].flops * examples;
      if (profile.empty()) continue;
      forward += profile[layer].forward_seconds;
      backward += profile[layer].backward_seconds;
    }
    const int64_t bytes =
        OutputBytes(spec, stages[i], micro_batch_examples,
                    output_types.empty() ? torch::kFloat : output_types[i]);
    absl::StrAppendFormat(&table, "\n%5d  %-22s %12d %14d %13.4g", i,
                          Names(spec, stages[i]), parameters, bytes, flops);
    if (!profile.empty())
      absl::StrAppendFormat(&table, " %10.3f %11.3f", 1e3 * forward,
                            1e3 * backward);
  }
  return table;
}

}  // namespace rankwise

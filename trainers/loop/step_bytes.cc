#include "trainers/loop/step_bytes.h"

#include "trainers/models/layer_bytes.h"

namespace rankwise {
namespace {

constexpr double kParameterBytes = 4;

// Returns the optimizer's passes over arrays as large as the parameters: it
// reads the weight and the gradient, writes the weight, and reads and writes
// each state tensor (Adam: two moments; SGD: momentum, if any).
double OptimizerPasses(const OptimizerConfig& optimizer) {
  if (optimizer.name != "sgd") return 7;
  return optimizer.momentum > 0 ? 5 : 3;
}

}  // namespace

double ValueBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : 2;
}

double StepBytes(const TrainConfig& config, const Worker& worker,
                 const ModelSpec& spec, int64_t owned_parameters) {
  double passes = 0;
  for (size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const LayerBytes bytes =
        BytesOf(spec, layer, static_cast<double>(config.data.batch_size),
                ValueBytes(config.precision));
    passes += bytes.forward + bytes.backward;
  }
  return passes * static_cast<double>(config.accumulate) / worker.size("pp") +
         kParameterBytes * OptimizerPasses(config.optimizer) *
             static_cast<double>(owned_parameters);
}

}  // namespace rankwise

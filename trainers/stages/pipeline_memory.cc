// Computes the memory of activations and messages on the ranks of a pipeline.
#include <cmath>

#include "parallel/pipeline/simulation/memory.h"
#include "trainers/memory/computed_memory.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {
namespace {

// Computes the memory of stages.
class StageMemory {
 public:
  // `config` and `model` must outlive it.
  StageMemory(const TrainConfig& config, c10::DeviceType device,
              const ModelSpec& model, bool has_bf16_parameters)
      : config_(config),
        device_(device),
        model_(model),
        has_bf16_parameters_(has_bf16_parameters),
        types_(KeptTypesOf(config.precision, device, has_bf16_parameters)) {}

  // Returns the bytes of one micro-batch.
  StageBytes Of(const LayerRange& range, bool recompute) const {
    StageParts parts;
    parts.input = MessageBytes(range.begin);
    parts.output = MessageBytes(range.end);
    parts.kept = static_cast<double>(ComputeActivations(
        config_, device_, model_, range, has_bf16_parameters_));
    parts.keeps_input = KeepsInput(range.begin);
    for (size_t layer = range.begin; layer < range.end; ++layer) {
      parts.until_weight_grad += types_.value_bytes * examples() *
                                 model_.layers[layer].kept.until_weight_grad;
    }
    return StageBytesOf(parts, recompute);
  }

 private:
  double examples() const {
    return static_cast<double>(config_.data.batch_size);
  }
  bool IsWide(size_t layer) const {
    return model_.layers[layer].kept.wide_values > 0;
  }

  // Returns the bytes per number entering `layer`, which is not the first.
  // Under autocast norms and blocks use fp32, unless the parameters are 16-bit.
  double BytesInto(size_t layer) const {
    const bool is_wide = IsWide(layer - 1) || IsWide(layer);
    return is_wide && !has_bf16_parameters_ ? 4 : types_.value_bytes;
  }

  // Returns the bytes of the message into `layer`; 0 for the model's input and
  // output.
  double MessageBytes(size_t layer) const {
    if (layer == 0 || layer == model_.layers.size()) return 0;
    double bytes = examples() * BytesInto(layer);
    for (const int64_t size : model_.layers[layer - 1].part_shape)
      bytes *= static_cast<double>(size);
    return bytes;
  }

  // Returns whether the layer stores the message itself for backward instead of
  // a copy of another type.
  bool KeepsInput(size_t layer) const {
    if (layer == 0 || !model_.layers[layer].keeps_input) return false;
    const double kept = IsWide(layer) ? types_.wide_bytes : types_.value_bytes;
    return kept == BytesInto(layer);
  }

  const TrainConfig& config_;
  const c10::DeviceType device_;
  const ModelSpec& model_;
  const bool has_bf16_parameters_;
  const KeptTypes types_;
};

}  // namespace

int64_t PipelinePlan::ComputeActivations(const TrainConfig& config,
                                         const Schedule& schedule) const {
  const c10::DeviceType device = worker_.device.type();
  const StageMemory memory(config, device, model_,
                           ShardingOf(config_.zero, worker_).has_bf16());
  StepMemory step;
  step.recompute = config_.recompute;
  for (const LayerRange& stage : stages_)
    step.stages.push_back(memory.Of(stage, config_.recompute));
  return std::llround(PeakBytes(schedule, ranks_here_, step));
}

}  // namespace rankwise

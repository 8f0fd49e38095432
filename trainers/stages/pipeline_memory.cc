// Computes the activations and messages that the ranks of a pipeline hold.
#include <cmath>

#include "parallel/pipeline/simulation/memory.h"
#include "trainers/loop/computed_memory.h"
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
        has_bf16_parameters_(has_bf16_parameters) {}

  // Of one micro-batch.
  StageBytes Of(const LayerRange& range, bool recompute) const {
    StageBytes stage;
    stage.input = MessageBytes(range.begin);
    stage.output = MessageBytes(range.end);
    const double kept = Kept(range) - (SharesInput(range) ? stage.input : 0);
    // The first stage has no input gradient, and leaves everything to W; the
    // gradient of its output takes the place of the output.
    stage.until_weight_grad =
        kept + (range.begin == 0 ? stage.output : AddedUntilW(range));
    if (recompute) {
      stage.recomputed = kept + stage.output;
    } else {
      stage.kept = kept;
    }
    return stage;
  }

 private:
  bool IsWide(size_t layer) const {
    return model_.layers[layer].kept.wide_values > 0;
  }
  torch::ScalarType ValueType() const {
    return config_.precision == Precision::kFp32 ? torch::kFloat
                                                 : torch::kBFloat16;
  }

  // Into `layer`; 0 into the first layer and out of the last. Under autocast
  // norms and blocks take and return fp32, unless the parameters are 16-bit.
  double MessageBytes(size_t layer) const {
    if (layer == 0 || layer == model_.layers.size()) return 0;
    return static_cast<double>(OutputBytes(
        model_, {layer - 1, layer}, config_.data.batch_size, TypeInto(layer)));
  }
  torch::ScalarType TypeInto(size_t layer) const {
    const bool is_wide = IsWide(layer - 1) || IsWide(layer);
    return is_wide && !has_bf16_parameters_ ? torch::kFloat : ValueType();
  }

  // Whether what the first layer keeps for backward is the input itself, and
  // not a copy of another type.
  bool SharesInput(const LayerRange& range) const {
    if (range.begin == 0 || !model_.layers[range.begin].keeps_input)
      return false;
    const bool in_16_bits =
        has_bf16_parameters_ && device_ == c10::DeviceType::CPU;
    const torch::ScalarType kept =
        IsWide(range.begin) && !in_16_bits ? torch::kFloat : ValueType();
    return kept == TypeInto(range.begin);
  }

  double Kept(const LayerRange& range) const {
    return static_cast<double>(ComputeActivations(config_, device_, model_,
                                                  range, has_bf16_parameters_));
  }

  double AddedUntilW(const LayerRange& range) const {
    double numbers = 0;
    for (size_t layer = range.begin; layer < range.end; ++layer)
      numbers += model_.layers[layer].kept.until_weight_grad;
    return static_cast<double>(c10::elementSize(ValueType())) * numbers *
           static_cast<double>(config_.data.batch_size);
  }

  const TrainConfig& config_;
  const c10::DeviceType device_;
  const ModelSpec& model_;
  const bool has_bf16_parameters_;
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

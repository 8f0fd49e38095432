// A range of a model's layers as a pipeline stage.
#ifndef RANKWISE_TRAINERS_STAGES_MODEL_STAGE_H_
#define RANKWISE_TRAINERS_STAGES_MODEL_STAGE_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "parallel/pipeline/engine/stage.h"
#include "samplers/datasets/dataset.h"
#include "trainers/loop/config.h"
#include "trainers/models/model.h"

namespace rankwise {

struct ModelStageConfig {
  LayerRange layers;
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;  // of the forward
  // Of what enters and leaves, but for the first input and the last output.
  torch::ScalarType input_type = torch::kFloat, output_type = torch::kFloat;
};

class ModelStage : public Stage {
 public:
  // What the last stage makes of the model's output for a micro-batch.
  using Finish = std::function<torch::Tensor(int micro_batch,
                                             const torch::Tensor& output)>;

  // `model` keeps the layers of `config`; both outlive the stage.
  ModelStage(Model& model, const ModelSpec& spec, ModelStageConfig config);

  // Before the forwards of a step: its micro-batches, which outlive it, and the
  // seed of each one's dropout masks.
  void Begin(absl::Span<const Batch> micro_batches,
             std::vector<uint64_t> dropout_seeds, Finish finish);

  torch::Tensor Forward(int micro_batch, const torch::Tensor& input) override;
  std::vector<int64_t> InputShape(int micro_batch) const override;
  std::vector<int64_t> OutputShape(int micro_batch) const override;
  torch::ScalarType InputType() const override { return config_.input_type; }
  torch::ScalarType OutputType() const override { return config_.output_type; }
  std::vector<torch::Tensor> Parameters() const override { return parameters_; }
  std::vector<torch::Tensor> Buffers() const override { return buffers_; }

  bool is_first() const { return config_.layers.begin == 0; }
  bool is_last() const { return config_.layers.end == spec_.layers.size(); }

 private:
  std::vector<int64_t> ShapeAfter(size_t layer, int micro_batch) const;

  Model& model_;
  const ModelSpec& spec_;
  const ModelStageConfig config_;
  std::vector<torch::Tensor> parameters_, buffers_;
  absl::Span<const Batch> micro_batches_;
  std::vector<uint64_t> dropout_seeds_;
  Finish finish_;
};

// What leaves the layers of `config` for an `input` of few examples, in the
// type that autocast's rules give it. Changes nothing in the model.
torch::Tensor TryForward(Model& model, const ModelStageConfig& config,
                         const torch::Tensor& input);

// One example as it enters the layers of `config`: the first of `data` where
// they are the model's first, else zeros of its input_type.
torch::Tensor ExampleInput(const ModelSpec& spec,
                           const ModelStageConfig& config, const Dataset& data);

// The parameters that the layers of `range` use: their own, and weights of
// other layers that they are tied to.
std::vector<torch::Tensor> ParametersOf(const Model& model,
                                        const ModelSpec& spec,
                                        const LayerRange& range);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_MODEL_STAGE_H_

#include "parallel/pipeline/engine/sequential.h"

#include <cstddef>
#include <utility>

#include "parallel/pipeline/simulation/simulate.h"
#include "third_party/absl/status_macros.h"
#include "torch/utils.h"

namespace rankwise {

// A stage of consecutive layers.
class SequentialPipeline::LayersStage : public Stage {
 public:
  // `input`, `output`: of one micro-batch, for their shapes and types.
  LayersStage(torch::nn::Sequential layers, at::Tensor input, at::Tensor output)
      : layers_(std::move(layers)),
        input_(std::move(input)),
        output_(std::move(output)) {}

  // `inputs` is for the first stage, by micro-batch; the others for the last.
  void Begin(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets,
             LossFunction loss) {
    inputs_ = std::move(inputs);
    targets_ = std::move(targets);
    loss_ = std::move(loss);
  }

  at::Tensor Forward(int micro_batch, const at::Tensor& input) override {
    const auto index = static_cast<size_t>(micro_batch);
    const at::Tensor output =
        layers_->forward(input.defined() ? input : inputs_[index]);
    if (targets_.empty()) return output;
    return loss_(output, targets_[index]) /
           static_cast<double>(targets_.size());
  }

  std::vector<int64_t> InputShape(int) const override {
    return input_.sizes().vec();
  }
  std::vector<int64_t> OutputShape(int) const override {
    return output_.sizes().vec();
  }
  at::ScalarType InputType() const override { return input_.scalar_type(); }
  at::ScalarType OutputType() const override { return output_.scalar_type(); }
  std::vector<at::Tensor> Parameters() const override {
    return layers_->parameters();
  }
  std::vector<at::Tensor> Buffers() const override {
    return layers_->buffers();
  }

 private:
  torch::nn::Sequential layers_;
  const at::Tensor input_, output_;
  std::vector<at::Tensor> inputs_, targets_;
  LossFunction loss_;
};

namespace {

// Returns the output of `part` for `input`, whose values do not matter. Runs in
// evaluation mode, which does not update running statistics, and restores each
// layer's mode.
at::Tensor TryForward(torch::nn::Sequential part, const at::Tensor& input) {
  const auto modules = part->modules();  // each before its children
  std::vector<bool> trains;
  for (const auto& module : modules) trains.push_back(module->is_training());
  part->eval();
  const torch::NoGradGuard no_grad;
  const at::Tensor output = part->forward(input);
  for (size_t i = 0; i < modules.size(); ++i) modules[i]->train(trains[i]);
  return output;
}

}  // namespace

SequentialPipeline::SequentialPipeline() = default;
SequentialPipeline::~SequentialPipeline() = default;

absl::StatusOr<std::unique_ptr<SequentialPipeline>> SequentialPipeline::Create(
    torch::nn::Sequential layers, const at::Tensor& example,
    const Group& pipeline, const SequentialPipelineConfig& config) {
  ASSIGN_OR_RETURN(const Schedule compute,
                   MakeSchedule(config.schedule,
                                {.num_ranks = pipeline.size(),
                                 .num_micro_batches = config.micro_batches}));
  std::vector<double> parameter_counts;
  for (const auto& layer : layers->children()) {
    double count = 1;  // so that layers without parameters count
    for (const at::Tensor& parameter : layer->parameters())
      count += static_cast<double>(parameter.numel());
    parameter_counts.push_back(count);
  }
  ASSIGN_OR_RETURN(Cuts cuts,
                   BalanceLayers(parameter_counts,
                                 static_cast<size_t>(compute.num_stages())));
  cuts.push_back(parameter_counts.size());

  auto result = std::unique_ptr<SequentialPipeline>(new SequentialPipeline);
  ASSIGN_OR_RETURN(result->schedule_, AddCommunication(compute));
  result->batch_size_ = config.micro_batches * example.size(0);
  std::vector<Stage*> stages;
  at::Tensor input = example.to(config.device);
  size_t layer = 0;
  for (size_t stage = 0; stage < cuts.size(); ++stage) {
    torch::nn::Sequential part;
    for (; layer < cuts[stage]; ++layer)
      part->push_back(layers->begin()[static_cast<ptrdiff_t>(layer)]);
    part->to(config.device);
    const at::Tensor output = TryForward(part, input);
    const bool here = compute.rank_of_stage[stage] == pipeline.place();
    result->stages_.push_back(
        here ? std::make_unique<LayersStage>(part, input, output) : nullptr);
    stages.push_back(result->stages_.back().get());
    input = output;
  }
  result->executor_ = std::make_unique<PipelineExecutor>(
      pipeline, stages,
      ExecutorConfig{.devices = {config.device},
                     .rank_of_stage = compute.rank_of_stage});
  return result;
}

std::vector<at::Tensor> SequentialPipeline::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& stage : stages_) {
    if (stage == nullptr) continue;
    for (at::Tensor& parameter : stage->Parameters())
      all.push_back(std::move(parameter));
  }
  return all;
}

at::Tensor SequentialPipeline::Step(const at::Tensor& inputs,
                                    const at::Tensor& targets,
                                    const LossFunction& loss) {
  const auto micro_batches = static_cast<int64_t>(schedule_.num_micro_batches);
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage] == nullptr) continue;
    const bool is_last = stage + 1 == stages_.size();
    TORCH_CHECK((stage > 0 || inputs.size(0) == batch_size_) &&
                    (!is_last || targets.size(0) == batch_size_),
                "SequentialPipeline::Step: ", inputs.size(0), " inputs and ",
                targets.size(0), " targets; the batch must have ", batch_size_,
                ", the example's size for each of ", micro_batches,
                " micro-batches");
    stages_[stage]->Begin(
        stage == 0 ? inputs.chunk(micro_batches) : std::vector<at::Tensor>(),
        is_last ? targets.chunk(micro_batches) : std::vector<at::Tensor>(),
        loss);
  }
  return executor_->Run(schedule_).front().loss;
}

}  // namespace rankwise

// A model's layers as pipeline stages, and their connection to other processes:
// the parallel part of a pipeline's step.
#ifndef RANKWISE_TRAINERS_STAGES_PIPELINE_STAGES_H_
#define RANKWISE_TRAINERS_STAGES_PIPELINE_STAGES_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/device/device_event.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "parallel/sharded/fully_sharded.h"
#include "samplers/datasets/dataset.h"
#include "trainers/loop/config.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

struct ModelStageConfig {
  LayerRange layers;
  torch::Device device = torch::kCPU;
  Precision precision = Precision::kFp32;  // of the forward
  // Types of the stage's messages, not of the model's input and output.
  torch::ScalarType input_type = torch::kFloat, output_type = torch::kFloat;
};

// A range of a model's layers as a pipeline stage.
class ModelStage : public Stage {
 public:
  // Computes the last stage's result from the model's output for a micro-batch.
  using Finish = std::function<torch::Tensor(int micro_batch,
                                             const torch::Tensor& output)>;

  // `model` must keep the layers of `config`; both must outlive the stage.
  ModelStage(Model& model, const ModelSpec& spec, ModelStageConfig config);

  // Call before the forwards of a step. `micro_batches` must outlive the step;
  // each has one dropout seed.
  void Begin(absl::Span<const Batch> micro_batches,
             std::vector<uint64_t> dropout_seeds, Finish finish);

  // Called at the end of each Forward, within it, and again when its backward
  // begins, if the output requires grad (not in an evaluation). May be nullptr.
  void set_after_forward(std::function<void()> call) {
    after_forward_ = std::move(call);
  }

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
  std::function<void()> after_forward_;
};

// Returns the output of the layers of `config` for an `input` of few examples,
// in the type determined by autocast. Leaves the model unchanged.
torch::Tensor TryForward(Model& model, const ModelStageConfig& config,
                         const torch::Tensor& input);

// Not thread-safe. Every method is collective over all ranks of the job, and
// throws the exceptions of failed messages.
class PipelineStages {
 public:
  // Makes stages of `model`, which must keep the layers of plan.Placement().
  // Under autocast runs one example of `data` to find the stages' output types.
  // `sharded`, the engine that sharded the model, may be nullptr. All arguments
  // must outlive this.
  PipelineStages(const TrainConfig& config, const Worker& worker,
                 const PipelinePlan& plan, Model& model, const Dataset& data,
                 FullyShardedDataParallel* sharded = nullptr);

  // Outputs of all stages of the model, by stage.
  const std::vector<torch::ScalarType>& output_types() const {
    return output_types_;
  }
  const std::vector<double>& output_bytes() const { return output_bytes_; }
  // Returns the cost of a message between neighbouring ranks, as measured here.
  const LinkCosts& link() const { return link_; }

  // Call before a step or an evaluation. `micro_batches` must outlive it; each
  // has one dropout seed; `finish` is the last stage's.
  void Begin(absl::Span<const Batch> micro_batches,
             const std::vector<uint64_t>& dropout_seeds,
             const ModelStage::Finish& finish);
  // `call` runs as each local stage's forward ends and its backward begins.
  void CallAfterForward(const std::function<void()>& call);
  // Runs forward and backward of the step; returns results by local rank.
  std::vector<ExecutorStep> Run(const Schedule& schedule);
  // Runs forward only, without gradients.
  void RunForward(int micro_batches);

  // Broadcasts replica 0's buffers to all replicas. Returns the exposed time.
  PendingDuration BroadcastBuffers();
  // Call after Run: averages gradients over dp and cp, and sums those of
  // weights that two stages share. Returns the exposed time by axis.
  std::map<std::string, PendingDuration> ExchangeGradients();

  // Returns the bytes carried by `send`, an action of the last step.
  int64_t BytesOf(const Action& send) const;

 private:
  ModelStageConfig ConfigOf(size_t stage) const;
  void FindOutputTypes(const Dataset& data);
  void FindSharedWeights();
  // Called when the last gradient of `stage` in this step is complete.
  void SynchronizeGradients(int stage);
  std::vector<Stage*> Pointers() const;
  void Connect();

  const TrainConfig& config_;
  const Worker& worker_;
  const PipelinePlan& plan_;
  Model& model_;
  FullyShardedDataParallel* const sharded_;
  std::vector<torch::ScalarType> output_types_;
  std::vector<double> output_bytes_;
  LinkCosts link_;
  std::vector<std::unique_ptr<ModelStage>> stages_;  // nullptr if not here
  // Weights that a stage shares with another: within this rank, where the
  // gradient is complete after both stages, or with a peer that holds a copy.
  struct SharedWeight {
    torch::Tensor weight;
    int peer;  // rank of the pipeline
    int tag;
  };
  std::vector<torch::Tensor> shared_here_;
  std::vector<SharedWeight> shared_with_peers_;
  // By stage, without weights shared within this rank.
  std::vector<std::vector<torch::Tensor>> own_parameters_;
  // The subset of own_parameters_ in Model::partial_gradient_parameters.
  std::vector<std::vector<torch::Tensor>> partial_gradient_parameters_;
  // With a process per rank: own_gradients_, or the engine passed in.
  GradientSync* replica_gradients_ = nullptr;
  std::unique_ptr<GradientSync> own_gradients_;
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_STAGES_H_

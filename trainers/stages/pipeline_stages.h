// A model's layers as pipeline stages, and what connects this process's to the
// others: the parallel half of a pipeline's step.
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
  // Of what enters and leaves, but for the first input and the last output.
  torch::ScalarType input_type = torch::kFloat, output_type = torch::kFloat;
};

// A range of a model's layers as a pipeline stage.
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

  // Called as each Forward ends, within it, and again as its backward begins.
  // May be null.
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

// What leaves the layers of `config` for an `input` of few examples, in the
// type that autocast's rules give it. Changes nothing in the model.
torch::Tensor TryForward(Model& model, const ModelStageConfig& config,
                         const torch::Tensor& input);

// Not thread-safe. Every method is collective over all ranks of the job, and
// throws what a failed message throws.
class PipelineStages {
 public:
  // Makes stages of `model`, which keeps the layers of plan.Placement(). Under
  // autocast one example of `data` shows which types the stages hand on. The
  // arguments must outlive this.
  // `sharded`: the engine that has divided the model, or null; it outlives
  // this, too.
  PipelineStages(const TrainConfig& config, const Worker& worker,
                 const PipelinePlan& plan, Model& model, const Dataset& data,
                 FullyShardedDataParallel* sharded = nullptr);

  // By stage, of the whole model: what it hands on.
  const std::vector<torch::ScalarType>& output_types() const {
    return output_types_;
  }
  const std::vector<double>& output_bytes() const { return output_bytes_; }
  // What a message between neighbouring ranks costs, measured here.
  const LinkCosts& link() const { return link_; }

  // Before a step or an evaluation: its micro-batches, which outlive it, the
  // seed of each one's dropout masks, and what the last stage makes of the
  // model's output.
  void Begin(absl::Span<const Batch> micro_batches,
             const std::vector<uint64_t>& dropout_seeds,
             const ModelStage::Finish& finish);
  // As each forward of a stage here ends, and as its backward begins.
  void CallAfterForward(const std::function<void()>& call);
  // Forward and backward of the step; by rank here.
  std::vector<ExecutorStep> Run(const Schedule& schedule);
  // Forward only, without gradients.
  void RunForward(int micro_batches);

  // Replica 0's buffers go to all replicas. How long that took.
  PendingDuration BroadcastBuffers();
  // After Run: averages gradients over dp and cp, and adds up those of weights
  // that two stages share. How long the update had to wait for it, by axis.
  std::map<std::string, PendingDuration> ExchangeGradients();

  // What `send`, an action of the last step, carried.
  int64_t BytesOf(const Action& send) const;

 private:
  ModelStageConfig ConfigOf(size_t stage) const;
  void FindOutputTypes(const Dataset& data);
  void FindSharedWeights();
  // When the last gradient of `stage` in this step is complete.
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
  std::vector<std::unique_ptr<ModelStage>> stages_;  // null: another rank's
  // Weights that a stage shares with another one: of this rank, whose gradient
  // is complete after both, or of a peer, who holds the other copy.
  struct SharedWeight {
    torch::Tensor weight;
    int peer;  // rank of the pipeline
    int tag;
  };
  std::vector<torch::Tensor> shared_here_;
  std::vector<SharedWeight> shared_with_peers_;
  // By stage: without those shared here; of these, what sees this rank's tokens
  // only.
  std::vector<std::vector<torch::Tensor>> own_parameters_, of_own_tokens_;
  // With a process per rank: own_gradients_, or the engine that was passed.
  GradientSync* replica_gradients_ = nullptr;
  std::unique_ptr<GradientSync> own_gradients_;
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGES_PIPELINE_STAGES_H_

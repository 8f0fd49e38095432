// Trains a torch::nn::Sequential as a pipeline: for programs whose model is a
// row of layers and that have no stages of their own.
#ifndef RANKWISE_PARALLEL_PIPELINE_ENGINE_SEQUENTIAL_H_
#define RANKWISE_PARALLEL_PIPELINE_ENGINE_SEQUENTIAL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "parallel/pipeline/engine/executor.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/types.h"

namespace rankwise {

struct SequentialPipelineConfig {
  std::string schedule = "1f1b";  // or another of ScheduleNames()
  int micro_batches = 4;          // that a step's batch is cut into
  c10::Device device = c10::kCPU;
};

// One per rank of a pipeline. Not thread-safe.
class SequentialPipeline {
 public:
  // The mean loss of a micro-batch's outputs and targets: a scalar.
  using LossFunction =
      std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

  // `layers`: the whole model, equal on all ranks of `pipeline` (made after the
  // same torch::manual_seed). It is cut where the stages' parameter counts are
  // as equal as can be; layers of other ranks are not kept. `example`: the
  // inputs of one micro-batch, [b, ...]; it runs through the model once, so
  // that both sides of every cut know the shapes. InvalidArgument where there
  // are fewer layers than stages, or the schedule cannot be made for this
  // number of ranks and micro-batches.
  static absl::StatusOr<std::unique_ptr<SequentialPipeline>> Create(
      torch::nn::Sequential layers, const at::Tensor& example,
      const Group& pipeline, const SequentialPipelineConfig& config = {});
  ~SequentialPipeline();

  // Of this rank's stages: what its optimizer updates.
  std::vector<at::Tensor> parameters() const;

  // Forward and backward of one optimizer step: adds the gradients of the mean
  // loss to those of parameters(), and returns that loss on every rank.
  // `inputs` and `targets`, [micro_batches * b, ...], are read on the first and
  // on the last rank; all ranks call it. Throws what a failed message throws.
  at::Tensor Step(const at::Tensor& inputs, const at::Tensor& targets,
                  const LossFunction& loss);

 private:
  class LayersStage;
  SequentialPipeline();

  Schedule schedule_;                                 // with its communication
  int64_t batch_size_ = 0;                            // examples of a step
  std::vector<std::unique_ptr<LayersStage>> stages_;  // null: another rank's
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_SEQUENTIAL_H_

// Trains a torch::nn::Sequential as a pipeline: for programs whose model is a
// sequence of layers without stages of its own.
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
  std::string schedule = "1f1b";  // one of ScheduleNames()
  int micro_batches = 4;          // per step
  c10::Device device = c10::kCPU;
};

// One per rank of a pipeline. Not thread-safe.
class SequentialPipeline {
 public:
  // Returns the mean loss of a micro-batch's outputs and targets: a scalar.
  using LossFunction =
      std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>;

  // `layers`: the whole model, equal on all ranks of `pipeline` (created after
  // the same torch::manual_seed). It is cut into stages of nearly equal
  // parameter counts; layers of other ranks are released. `example`: the inputs
  // of one micro-batch, [b, ...], which run through the model once to determine
  // the shapes at every cut. InvalidArgument if there are fewer layers than
  // stages, or if the schedule does not support this number of ranks and
  // micro-batches.
  static absl::StatusOr<std::unique_ptr<SequentialPipeline>> Create(
      torch::nn::Sequential layers, const at::Tensor& example,
      const Group& pipeline, const SequentialPipelineConfig& config = {});
  ~SequentialPipeline();

  // Returns the parameters of this rank's stages, for its optimizer.
  std::vector<at::Tensor> parameters() const;

  // Runs forward and backward of one optimizer step: adds the gradients of the
  // mean loss to those of parameters(), and returns that loss on every rank.
  // `inputs` and `targets`, [micro_batches * b, ...], are read on the first and
  // the last rank, respectively; all ranks must call it. Rethrows the error of
  // a failed message.
  at::Tensor Step(const at::Tensor& inputs, const at::Tensor& targets,
                  const LossFunction& loss);

 private:
  class LayersStage;
  SequentialPipeline();

  Schedule schedule_;       // including communication
  int64_t batch_size_ = 0;  // examples per step
  // By stage; nullptr for stages of other ranks.
  std::vector<std::unique_ptr<LayersStage>> stages_;
  std::unique_ptr<PipelineExecutor> executor_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ENGINE_SEQUENTIAL_H_

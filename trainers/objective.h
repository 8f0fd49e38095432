// What training minimises: a model's loss on a batch, in the precision asked
// for.
#ifndef RANKWISE_TRAINERS_OBJECTIVE_H_
#define RANKWISE_TRAINERS_OBJECTIVE_H_

#include <torch/types.h>

#include <memory>

#include "absl/types/span.h"
#include "samplers/datasets/dataset.h"
#include "trainers/config.h"
#include "trainers/models/model.h"

namespace rankwise {

class Objective {
 public:
  Objective(std::shared_ptr<Model> model, LossKind kind, Precision precision,
            torch::Device device)
      : model_(std::move(model)),
        kind_(kind),
        precision_(precision),
        device_(device) {}

  // The model's output for `data` [B, example_shape...].
  torch::Tensor Output(const torch::Tensor& data) const;

  // Scalar, mean over the batch.
  torch::Tensor Loss(const Batch& batch) const;

  // `micro_batch`'s part of the mean loss over all of `micro_batches`, so that
  // gradients accumulated over them equal those of one large batch, also when
  // the last one is smaller.
  torch::Tensor LossShare(const Batch& micro_batch,
                          absl::Span<const Batch> micro_batches) const;

  LossKind kind() const { return kind_; }
  Model& model() const { return *model_; }

 private:
  std::shared_ptr<Model> model_;
  LossKind kind_;
  Precision precision_;
  torch::Device device_;
};

// `loss`, the mean over `micro_batch`, weighted as its part of the mean over
// all of `micro_batches`.
torch::Tensor ShareOfMean(const torch::Tensor& loss, const Batch& micro_batch,
                          absl::Span<const Batch> micro_batches);

// Examples in all of `batches`.
int64_t CountExamples(absl::Span<const Batch> batches);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBJECTIVE_H_

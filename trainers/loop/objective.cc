#include "trainers/loop/objective.h"

namespace rankwise {

torch::Tensor Objective::Output(const torch::Tensor& data) const {
  AutocastScope autocast(precision_, device_.type());
  return model_->Forward(data);
}

torch::Tensor Objective::Loss(const Batch& batch) const {
  AutocastScope autocast(precision_, device_.type());
  return rankwise::Loss(kind_, model_->Forward(batch.data), batch.target);
}

torch::Tensor Objective::LossShare(
    const Batch& micro_batch, absl::Span<const Batch> micro_batches) const {
  return ShareOfMean(Loss(micro_batch), micro_batch, micro_batches);
}

torch::Tensor ShareOfMean(const torch::Tensor& loss, const Batch& micro_batch,
                          absl::Span<const Batch> micro_batches) {
  if (micro_batches.size() == 1) return loss;
  return loss * (static_cast<double>(micro_batch.target.size(0)) /
                 static_cast<double>(CountExamples(micro_batches)));
}

int64_t CountExamples(absl::Span<const Batch> batches) {
  int64_t examples = 0;
  for (const Batch& batch : batches) examples += batch.target.size(0);
  return examples;
}

}  // namespace rankwise

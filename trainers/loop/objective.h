// The training objective: a model's loss on a batch, in --precision; and its
// evaluation over the whole test set, which counts every example once for any
// world size.
#ifndef RANKWISE_TRAINERS_LOOP_OBJECTIVE_H_
#define RANKWISE_TRAINERS_LOOP_OBJECTIVE_H_

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "records/record.h"
#include "samplers/datasets/dataset.h"
#include "trainers/loop/config.h"
#include "trainers/loop/training_data.h"
#include "trainers/loop/worker.h"
#include "trainers/models/model.h"

namespace rankwise {

// Not nestable. Weights are cast once per scope. A scope with `keeps_casts`
// leaves its casts to later scopes; the next scope without it still uses them
// and drops them at its end. Cached casts do not follow changes of the weight,
// and casts made without gradients have none.
class AutocastScope {
 public:
  // Does nothing under kFp32.
  AutocastScope(Precision precision, at::DeviceType device,
                bool keeps_casts = false)
      : enabled_(precision != Precision::kFp32),
        device_(device),
        keeps_casts_(keeps_casts) {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(
        device_, precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (!enabled_) return;
    at::autocast::decrement_nesting();
    if (!keeps_casts_) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool enabled_;
  const at::DeviceType device_;
  const bool keeps_casts_;
};

inline int64_t CountExamples(absl::Span<const Batch> batches) {
  int64_t examples = 0;
  for (const Batch& batch : batches) examples += batch.target.size(0);
  return examples;
}

// Returns `loss`, the mean over `micro_batch`, weighted as its part of the mean
// over all of `micro_batches`.
inline torch::Tensor ShareOfMean(const torch::Tensor& loss,
                                 const Batch& micro_batch,
                                 absl::Span<const Batch> micro_batches) {
  if (micro_batches.size() == 1) return loss;
  return loss * (static_cast<double>(micro_batch.target.size(0)) /
                 static_cast<double>(CountExamples(micro_batches)));
}

class Objective {
 public:
  Objective(std::shared_ptr<Model> model, LossKind kind, Precision precision,
            torch::Device device)
      : model_(std::move(model)),
        kind_(kind),
        precision_(precision),
        device_(device) {}

  // Returns the model's output for `data` [B, example_shape...].
  torch::Tensor Output(const torch::Tensor& data) const {
    AutocastScope autocast(precision_, device_.type());
    return model_->Forward(data);
  }

  // Returns a scalar, the mean over the batch of `output`.
  torch::Tensor LossOf(const torch::Tensor& output,
                       const torch::Tensor& target) const {
    AutocastScope autocast(precision_, device_.type());
    return model_->LossOf(output, target);
  }

  // Returns a scalar, the mean over the batch.
  torch::Tensor Loss(const Batch& batch) const {
    return Loss(batch, /*keeps_casts=*/false);
  }

  // Returns `micro_batch`'s part of the mean loss over all of `micro_batches`,
  // so that accumulated gradients equal those of one large batch, even if the
  // last micro-batch is smaller. Call for the elements of `micro_batches` in
  // order, without changing weights in between: weights are cast once for all
  // of them, unless an engine gathers them for each forward. If other threads
  // cast the same weights, use ShareOfMean of Loss.
  torch::Tensor LossShare(const Batch& micro_batch,
                          absl::Span<const Batch> micro_batches) const;

  LossKind kind() const { return kind_; }
  Model& model() const { return *model_; }

 private:
  torch::Tensor Loss(const Batch& batch, bool keeps_casts) const {
    AutocastScope autocast(precision_, device_.type(), keeps_casts);
    return model_->LossOf(model_->Forward(batch.data), batch.target);
  }

  std::shared_ptr<Model> model_;
  LossKind kind_;
  Precision precision_;
  torch::Device device_;
};

// Returns batches of one example, one for each forward that the rank along dp
// with the most forwards runs beyond this rank's `forwards`: for models whose
// forward is collective.
std::vector<Batch> SpareBatches(const TrainingData& data, const Worker& worker,
                                int64_t forwards);

// Every rank evaluates its share; collective if worker.comm is set. Internal
// error if the ranks together did not evaluate exactly the test set. `output`,
// if not nullptr, replaces objective.Output.
absl::StatusOr<EvalRecord> Evaluate(
    const Objective& objective, TrainingData& data, const Worker& worker,
    int64_t epoch,
    const std::function<torch::Tensor(const torch::Tensor& data)>& output =
        nullptr);

// During its lifetime batch norm and dropout run in inference mode, and
// gradients are not recorded.
class EvaluationMode {
 public:
  explicit EvaluationMode(Model& model)
      : model_(model), was_training_(model.is_training()) {
    model_.eval();
  }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  const at::NoGradGuard no_grad_;
  Model& model_;
  const bool was_training_;
};

// A rank's sums over the batches whose outputs it has; ranks without outputs
// must call Finish too.
class EvaluationSums {
 public:
  EvaluationSums(LossKind kind, torch::Device device);

  // output [B, C] or [B, T, C] and target [B] or [B, T]; [B, k] for regression.
  void Add(const torch::Tensor& output, const torch::Tensor& target);

  // Returns the result over all ranks, as Evaluate does.
  absl::StatusOr<EvalRecord> Finish(const TrainingData& data,
                                    const Worker& worker, int64_t epoch);

 private:
  const LossKind kind_;
  const double start_seconds_;
  torch::Tensor sums_;  // fp64
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_OBJECTIVE_H_

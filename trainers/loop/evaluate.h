// Evaluation over the whole test set, every example counted once, whatever the
// world size.
#ifndef RANKWISE_TRAINERS_LOOP_EVALUATE_H_
#define RANKWISE_TRAINERS_LOOP_EVALUATE_H_

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/training_data.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Every rank evaluates its share; collective where worker.comm is set. Internal
// error if the ranks together did not see exactly the test set.
absl::StatusOr<EvalRecord> Evaluate(const Objective& objective,
                                    TrainingData& data, const Worker& worker,
                                    int64_t epoch);

// Batch norm and dropout behave as at inference, and nothing records
// gradients, while it lives.
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

// What a rank adds up over the batches whose outputs it sees; ranks that see
// none take part in Finish all the same.
class EvaluationSums {
 public:
  EvaluationSums(LossKind kind, torch::Device device);

  // output [B, C] or [B, T, C] and target [B] or [B, T]; [B, k] for regression.
  void Add(const torch::Tensor& output, const torch::Tensor& target);

  // The result over all ranks, as Evaluate gives it.
  absl::StatusOr<EvalRecord> Finish(const TrainingData& data,
                                    const Worker& worker, int64_t epoch);

 private:
  const LossKind kind_;
  const double start_seconds_;
  torch::Tensor sums_;  // fp64
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_EVALUATE_H_

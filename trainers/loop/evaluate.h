// Evaluation over the whole test set, every example counted once, whatever the
// world size.
#ifndef RANKWISE_TRAINERS_LOOP_EVALUATE_H_
#define RANKWISE_TRAINERS_LOOP_EVALUATE_H_

#include <torch/types.h>

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"
#include "records/record.h"
#include "trainers/loop/objective.h"
#include "trainers/loop/training_data.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// A collective call where worker.comm is set: every rank evaluates its share,
// and the sums are all-reduced. Internal error if the ranks together did not
// see exactly the test set.
absl::StatusOr<EvalRecord> Evaluate(const Objective& objective,
                                    TrainingData& data, const Worker& worker,
                                    int64_t epoch);

// Batch norm and dropout behave as at inference, and nothing records
// gradients, while it lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(Model& model);
  ~EvaluationMode();
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  Model& model_;
  const bool was_training_;
  const bool recorded_gradients_;
};

// What a rank adds up over the batches whose outputs it sees; ranks that see
// none take part in Finish all the same.
class EvaluationSums {
 public:
  EvaluationSums(LossKind kind, torch::Device device);

  // output [B, C] or [B, T, C] and target [B] or [B, T]; [B, k] for regression.
  void Add(const torch::Tensor& output, const torch::Tensor& target);

  // The result over all ranks; collective where worker.comm is set. Internal
  // error if they did not see exactly the test set.
  absl::StatusOr<EvalRecord> Finish(const TrainingData& data,
                                    const Worker& worker, int64_t epoch);

 private:
  const LossKind kind_;
  const std::chrono::steady_clock::time_point start_;
  torch::Tensor sums_;  // fp64
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LOOP_EVALUATE_H_

#include "trainers/evaluate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/communicator.h"

namespace rankwise {
namespace {

// Batch norm and dropout behave as at inference while it lives.
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
  Model& model_;
  const bool was_training_;
};

// Positions in the tensor of sums.
enum Sum : int64_t { kLoss, kCorrect, kTotal, kSums };

void AddBatch(const Objective& objective, const Batch& batch,
              torch::Tensor& sums) {
  const torch::Tensor output = objective.Output(batch.data).to(at::kFloat);
  const int64_t examples = batch.target.size(0);
  sums[kLoss] +=
      rankwise::Loss(objective.kind(), output, batch.target) * examples;
  if (objective.kind() == LossKind::kCrossEntropy) {
    sums[kCorrect] += output.argmax(/*dim=*/1).eq(batch.target).sum();
  }
  sums[kTotal] += examples;
}

}  // namespace

absl::StatusOr<EvalRecord> Evaluate(const Objective& objective,
                                    TrainingData& data, const Worker& worker,
                                    int64_t epoch) {
  at::NoGradGuard no_grad;
  EvaluationMode evaluation_mode(objective.model());
  const auto start = std::chrono::steady_clock::now();
  torch::Tensor sums =
      at::zeros({kSums}, at::TensorOptions(worker.device).dtype(at::kDouble));
  data.test_loader->StartEpoch(0);
  while (true) {
    absl::StatusOr<std::optional<Batch>> batch = data.test_loader->Next();
    if (!batch.ok()) return batch.status();
    if (!batch->has_value()) break;
    AddBatch(objective, **batch, sums);
  }
  if (worker.comm != nullptr) {
    absl::Status reduced = worker.comm->AllReduce(sums);
    if (!reduced.ok()) return reduced;
  }
  sums = sums.cpu();
  EvalRecord record;
  record.rank = worker.env.rank;
  record.epoch = epoch;
  record.correct = static_cast<int64_t>(sums[kCorrect].item<double>());
  record.total = static_cast<int64_t>(sums[kTotal].item<double>());
  if (record.total != data.test->size()) {
    return absl::InternalError(absl::StrCat(
        "evaluation saw ", record.total, " examples of a test set of ",
        data.test->size(), "; the result would be wrong"));
  }
  record.mean_loss =
      sums[kLoss].item<double>() / static_cast<double>(record.total);
  record.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return record;
}

}  // namespace rankwise

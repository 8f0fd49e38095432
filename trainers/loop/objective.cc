#include "trainers/loop/objective.h"

#include <ATen/ops/zeros.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "samplers/loader/data_loader.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// Indices into the tensor of sums. A prediction is an example's or a token's.
enum Sum : int64_t { kLoss, kCorrect, kPredictions, kExamples, kSums };

}  // namespace

torch::Tensor Objective::LossShare(
    const Batch& micro_batch, absl::Span<const Batch> micro_batches) const {
  // Drop casts of a step that failed halfway.
  if (&micro_batch == &micro_batches.front() && precision_ != Precision::kFp32)
    at::autocast::clear_cache();
  const bool others_follow =
      &micro_batch >= micro_batches.data() &&
      &micro_batch + 1 < micro_batches.data() + micro_batches.size();
  // An engine that gathers weights for a layer also frees them, and may
  // recompute the layer in backward.
  const bool keeps_casts = others_follow && !model_->forward_is_collective();
  return ShareOfMean(Loss(micro_batch, keeps_casts), micro_batch,
                     micro_batches);
}

EvaluationSums::EvaluationSums(LossKind kind, torch::Device device)
    : kind_(kind),
      start_seconds_(SteadySeconds()),
      sums_(at::zeros({kSums}, at::TensorOptions(device).dtype(at::kDouble))) {}

void EvaluationSums::Add(const torch::Tensor& output,
                         const torch::Tensor& target) {
  const torch::Tensor in_fp32 = output.to(at::kFloat);
  const bool classes = kind_ == LossKind::kCrossEntropy;
  const int64_t predictions = classes ? target.numel() : target.size(0);
  sums_[kLoss] += Loss(kind_, in_fp32, target) * predictions;
  if (classes) sums_[kCorrect] += in_fp32.argmax(/*dim=*/-1).eq(target).sum();
  sums_[kPredictions] += predictions;
  sums_[kExamples] += target.size(0);
}

absl::StatusOr<EvalRecord> EvaluationSums::Finish(const TrainingData& data,
                                                  const Worker& worker,
                                                  int64_t epoch) {
  if (worker.comm != nullptr) {
    RETURN_IF_ERROR(worker.comm->AllReduce(sums_));
  }
  const torch::Tensor sums = sums_.cpu();
  const double* values = sums.data_ptr<double>();
  const int64_t examples = static_cast<int64_t>(values[kExamples]);
  if (examples != data.test.dataset->size()) {
    return absl::InternalError(
        absl::StrCat("evaluation saw ", examples, " examples of a test set of ",
                     data.test.dataset->size(), "; the result would be wrong"));
  }
  EvalRecord record;
  record.rank = worker.env.rank;
  record.epoch = epoch;
  record.correct = static_cast<int64_t>(values[kCorrect]);
  record.total = static_cast<int64_t>(values[kPredictions]);
  record.mean_loss = values[kLoss] / values[kPredictions];
  record.seconds = SteadySeconds() - start_seconds_;
  return record;
}

absl::StatusOr<EvalRecord> Evaluate(
    const Objective& objective, TrainingData& data, const Worker& worker,
    int64_t epoch,
    const std::function<torch::Tensor(const torch::Tensor& data)>& output) {
  EvaluationMode evaluation_mode(objective.model());
  EvaluationSums sums(objective.kind(), worker.device);
  data.test.loader->StartEpoch(0);
  int64_t forwards = 0;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Batch> batch, data.test.loader->Next());
    if (!batch.has_value()) break;
    ++forwards;
    const torch::Tensor whole = objective.model().WholeOutput(
        output == nullptr ? objective.Output(batch->data)
                          : output(batch->data));
    if (worker.is_first_of_share()) sums.Add(whole, batch->target);
  }
  if (objective.model().forward_is_collective()) {
    for (const Batch& batch : SpareBatches(data, worker, forwards))
      objective.Output(batch.data);
  }
  return sums.Finish(data, worker, epoch);
}

std::vector<Batch> SpareBatches(const TrainingData& data, const Worker& worker,
                                int64_t forwards) {
  const Dataset& examples = *data.test.dataset;
  const int64_t ranks = worker.dp_size();
  const int64_t batch_size = data.test.loader->batch_size();
  const int64_t most_examples = (examples.size() + ranks - 1) / ranks;
  const int64_t most_forwards = (most_examples + batch_size - 1) / batch_size;
  Batch spare = examples.Gather({0});
  if (spare.data.scalar_type() == at::kByte)
    spare.data = NormalizeImages(spare.data);
  spare.data = spare.data.to(worker.device);
  spare.target = spare.target.to(worker.device);
  return std::vector<Batch>(static_cast<size_t>(most_forwards - forwards),
                            spare);
}

}  // namespace rankwise

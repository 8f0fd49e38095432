#include "trainers/observe/step_log.h"

#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

#include "third_party/absl/status_macros.h"

namespace rankwise {
absl::Status StepLog::Add(PendingStep step) {
  pending_.push_back(std::move(step));
  return device_.is_cpu() ? Flush() : absl::OkStatus();
}

absl::Status StepLog::Flush() {
  if (pending_.empty()) return absl::OkStatus();
  std::vector<torch::Tensor> losses;
  for (const PendingStep& step : pending_)
    losses.push_back(step.loss.to(at::kFloat));
  const torch::Tensor on_host = at::stack(losses).cpu();
  const float* loss = on_host.data_ptr<float>();
  std::vector<StepRecord> records;
  std::vector<TrafficRecord> traffic;
  for (PendingStep& step : pending_) {
    StepRecord& record = step.record;
    record.loss = *loss++;
    step.clock.AddTo(record);
    record.exposed_comm_seconds = step.exposed_comm.Wait();
    if (step.complete != nullptr) step.complete(record);
    epoch_sums_.loss += record.loss * static_cast<double>(record.examples);
    epoch_sums_.examples += record.examples;
    if (!std::isfinite(record.loss) && first_non_finite_step_ == 0)
      first_non_finite_step_ = record.step;
    records.push_back(record);
    if (!step.traffic.has_value()) continue;
    traffic.push_back(*std::move(step.traffic));
    traffic.back().step_seconds = record.step_seconds;
    traffic.back().exposed_comm_seconds += record.exposed_comm_seconds;
  }
  last_loss_ = records.back().loss;
  pending_.clear();
  if (writer_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(writer_->Write(records));
  for (TrafficRecord& record : traffic) {
    RETURN_IF_ERROR(writer_->Write(Record(std::move(record))));
  }
  return absl::OkStatus();
}

}  // namespace rankwise

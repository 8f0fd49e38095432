#include "trainers/observe/step_log.h"

#include <ATen/ops/stack.h>

#include <cmath>
#include <utility>

namespace rankwise {
namespace {

void FillTimes(const StepTimes& times, StepRecord& record) {
  record.step_seconds = times.step_seconds;
  record.data_wait_seconds = times.data_wait_seconds;
  record.forward_seconds += times.forward_seconds;
  record.backward_seconds += times.backward_seconds;
  record.optimizer_seconds = times.optimizer_seconds;
  record.captured_seconds = times.captured_seconds;
}

}  // namespace

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
  std::vector<StepRecord> records;
  std::vector<TrafficRecord> traffic;
  for (size_t i = 0; i < pending_.size(); ++i) {
    StepRecord& record = pending_[i].record;
    record.loss = on_host.data_ptr<float>()[i];
    FillTimes(pending_[i].clock.Read(), record);
    record.exposed_comm_seconds = pending_[i].exposed_comm.Wait();
    if (pending_[i].complete != nullptr) pending_[i].complete(record);
    epoch_sums_.loss += record.loss * static_cast<double>(record.examples);
    epoch_sums_.examples += record.examples;
    if (!std::isfinite(record.loss) && first_non_finite_step_ == 0) {
      first_non_finite_step_ = record.step;
    }
    records.push_back(record);
    if (!pending_[i].traffic.has_value()) continue;
    traffic.push_back(*std::move(pending_[i].traffic));
    traffic.back().step_seconds = record.step_seconds;
    traffic.back().exposed_comm_seconds += record.exposed_comm_seconds;
  }
  last_loss_ = records.back().loss;
  pending_.clear();
  if (writer_ == nullptr) return absl::OkStatus();
  absl::Status written = writer_->Write(records);
  for (size_t i = 0; i < traffic.size() && written.ok(); ++i) {
    written = writer_->Write(Record(std::move(traffic[i])));
  }
  return written;
}

}  // namespace rankwise

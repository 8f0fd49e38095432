#include "trainers/step_traffic.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "parallel/comm/communicator.h"
#include "parallel/comm/traffic.h"

namespace rankwise {
namespace {

RecordedTransfer ToTransfer(const CommEvent& event,
                            std::chrono::steady_clock::time_point start) {
  const int64_t start_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                               start.time_since_epoch())
                               .count();
  const auto seconds = [start_ns](int64_t ns) {
    return ns == 0 ? std::numeric_limits<double>::quiet_NaN()
                   : static_cast<double>(ns - start_ns) * 1e-9;
  };
  RecordedTransfer transfer;
  transfer.op = event.op;
  transfer.bytes = event.bytes;
  transfer.count = event.count;
  transfer.dtype = event.dtype;
  transfer.peer = event.peer;
  transfer.ranks.assign(event.ranks.begin(), event.ranks.end());
  transfer.start_seconds = seconds(event.start_ns);
  transfer.end_seconds = seconds(event.end_ns);
  transfer.wait_start_seconds = seconds(event.wait_start_ns);
  return transfer;
}

}  // namespace

bool StepTraffic::Begin() {
  ++seen_;
  const int64_t number = seen_ - kWarmUpSteps;
  watching_ =
      comm_ != nullptr && number > 0 && number <= std::max(recorded_, traced_);
  if (watching_) comm_->StartTraffic();
  return watching_;
}

StepCommunication StepTraffic::End(
    const StepRecord& step, std::chrono::steady_clock::time_point start) {
  StepCommunication seen;
  if (!std::exchange(watching_, false)) return seen;
  seen.events = comm_->TakeTraffic();
  if (seen_ - kWarmUpSteps > recorded_) return seen;
  TrafficRecord& record = seen.record.emplace();
  record.rank = step.rank;
  record.step = step.step;
  for (const CommEvent& event : seen.events) {
    record.events.push_back(ToTransfer(event, start));
  }
  return seen;
}

}  // namespace rankwise

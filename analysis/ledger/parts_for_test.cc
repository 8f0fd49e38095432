#include "analysis/ledger/parts_for_test.h"

#include <cstddef>

namespace rankwise {
namespace {

void SetSchedule(const LedgerParts& parts, StepRecord* step,
                 ScheduleRecord* schedule) {
  const double exposed = parts.exposed_comm_seconds;
  schedule->busy_seconds = step->forward_seconds + step->backward_seconds;
  schedule->exposed_transfer_seconds = exposed / 4;
  schedule->wait_seconds = parts.bubble_seconds + exposed / 4;
  schedule->schedule_seconds =
      schedule->busy_seconds + schedule->wait_seconds + exposed / 4;
  step->exposed_comm_seconds = exposed / 2;
}

}  // namespace

RunTrace MakeRunOf(const RunForTest& config, const PartsForTest& parts_of) {
  RunTrace run = MakeRun(config);
  for (RankTrace& trace : run.ranks) {
    for (size_t i = 0; i < trace.steps.size(); ++i) {
      StepRecord& step = trace.steps[i];
      const LedgerParts parts = parts_of(trace.run.rank, step.step);
      step.step_seconds = parts.Total();
      step.data_wait_seconds = parts.data_wait_seconds;
      step.forward_seconds = 0.3 * parts.compute_seconds;
      step.backward_seconds = 0.6 * parts.compute_seconds;
      step.optimizer_seconds = 0.1 * parts.compute_seconds;
      if (trace.schedules.empty()) {
        step.backward_seconds += parts.exposed_comm_seconds;
        step.exposed_comm_seconds = parts.exposed_comm_seconds;
      } else {
        SetSchedule(parts, &step, &trace.schedules[i]);
      }
    }
  }
  return run;
}

}  // namespace rankwise

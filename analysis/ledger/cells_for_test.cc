#include "analysis/ledger/cells_for_test.h"

#include <cstddef>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

void SetSchedule(const LedgerParts& parts, StepRecord* step,
                 ScheduleRecord* schedule) {
  const double exposed = parts.exposed_dp_seconds;
  schedule->busy_seconds = step->forward_seconds + step->backward_seconds;
  schedule->exposed_transfer_seconds = exposed / 4;
  schedule->wait_seconds = parts.bubble_seconds + exposed / 4;
  schedule->schedule_seconds =
      schedule->busy_seconds + schedule->wait_seconds + exposed / 4;
  step->exposed_comm_seconds = exposed / 2;
}

[[noreturn]] void Die(const std::string& why) {
  std::cerr << why << std::endl;
  std::abort();
}

std::vector<RunTrace> RunsOf(const std::vector<CellForTest>& config) {
  std::vector<RunTrace> runs;
  for (const CellForTest& cell : config) {
    for (int i = 0; i < cell.repetitions; ++i) {
      RunTrace run = MakeRunOf(
          cell.run, cell.parts_of_run ? cell.parts_of_run(i) : cell.parts);
      for (RankTrace& trace : run.ranks) {
        trace.run.mesh = cell.mesh;
        trace.run.hosts = cell.hosts;
        trace.run.host_index =
            trace.run.rank * cell.hosts / trace.run.world_size;
        for (const auto& [name, value] : cell.flags) {
          trace.run.flags[name] = value;
        }
        SetConfigHashes(&trace.run);
      }
      if (cell.captured) CaptureSteps(run);
      runs.push_back(run);
    }
  }
  return runs;
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
        step.backward_seconds += parts.exposed_dp_seconds;
        step.exposed_comm_seconds = parts.exposed_dp_seconds;
      } else {
        SetSchedule(parts, &step, &trace.schedules[i]);
      }
    }
  }
  return run;
}

StudyForTest::StudyForTest(const std::vector<CellForTest>& config) {
  constexpr ThroughputConfig kNoWarmUp{0};
  const std::vector<RunTrace> runs = RunsOf(config);
  std::vector<std::string> left_out;
  cells = GroupIntoCells(runs, kNoWarmUp, &left_out);
  if (!left_out.empty()) Die(left_out[0]);
  for (const Cell& cell : cells) {
    std::vector<Ledger> repetitions;
    for (size_t index : cell.run_indices) {
      const auto ledger = MeasureLedger(runs[index], kNoWarmUp);
      if (!ledger.ok()) Die(std::string(ledger.status().message()));
      repetitions.push_back(*ledger);
    }
    ledgers.push_back({&cell, MeanLedger(repetitions), repetitions});
  }
}

const CellLedger& StudyForTest::Find(const std::string& trainer,
                                     int64_t world_size, int64_t batch_size,
                                     bool ablation) const {
  const CellLedger* found = nullptr;
  for (const CellLedger& ledger : ledgers) {
    const Cell& cell = *ledger.cell;
    if (cell.Trainer() != trainer || cell.run.world_size != world_size ||
        cell.run.flags.at("batch_size") != absl::StrCat(batch_size) ||
        cell.IsAblation() != ablation) {
      continue;
    }
    if (found != nullptr) Die(absl::StrCat("two cells of ", cell.Name()));
    found = &ledger;
  }
  if (found == nullptr) Die(absl::StrCat("no cell of ", trainer));
  return *found;
}

}  // namespace rankwise

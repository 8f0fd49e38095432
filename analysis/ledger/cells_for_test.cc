#include "analysis/ledger/cells_for_test.h"

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "analysis/ledger/related_cells.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

[[noreturn]] void Die(const std::string& why) {
  std::cerr << why << std::endl;
  std::abort();
}

std::vector<RunTrace> RunsOf(const std::vector<CellForTest>& config) {
  std::vector<RunTrace> runs;
  for (const CellForTest& cell : config) {
    for (int i = 0; i < cell.repetitions; ++i) {
      RunTrace run = MakeRunOf(cell.run, cell.parts);
      for (RankTrace& trace : run.ranks) {
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

StudyForTest::StudyForTest(const std::vector<CellForTest>& config) {
  constexpr ThroughputConfig kNoWarmUp{0};
  const std::vector<RunTrace> runs = RunsOf(config);
  std::vector<std::string> left_out;
  cells = GroupIntoCells(runs, kNoWarmUp, &left_out);
  if (!left_out.empty()) Die(left_out[0]);
  for (const Cell& cell : cells) {
    const auto ledger = MeasureLedger(runs[cell.run_indices[0]], kNoWarmUp);
    if (!ledger.ok()) Die(std::string(ledger.status().message()));
    ledgers.push_back({&cell, *ledger});
  }
}

const CellLedger& StudyForTest::Find(const std::string& trainer,
                                     int64_t world_size, int64_t batch_size,
                                     bool ablation) const {
  const CellLedger* found = nullptr;
  for (const CellLedger& ledger : ledgers) {
    const Cell& cell = *ledger.cell;
    if (cell.Trainer() != trainer || cell.run.world_size != world_size ||
        ExamplesPerPass(cell) != static_cast<double>(batch_size) ||
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

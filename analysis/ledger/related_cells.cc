#include "analysis/ledger/related_cells.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "records/config_hash.h"

namespace rankwise {
namespace {

bool SameMachine(const RunRecord& a, const RunRecord& b) {
  return a.threads_per_rank == b.threads_per_rank && a.devices == b.devices &&
         a.host.cpu_model == b.host.cpu_model &&
         a.versions.torch == b.versions.torch && a.source_hash == b.source_hash;
}

// Flags that only one of the two has, as newer code has more, may differ.
bool SameFlags(const RunRecord& a, const RunRecord& b, bool with_shape) {
  for (const auto& [name, value] : a.flags) {
    if (name == "skip_communication") continue;
    if (FollowsWorldSizeOrOutput(name) && !(with_shape && IsShapeFlag(name))) {
      continue;
    }
    const auto other = b.flags.find(name);
    if (other != b.flags.end() && other->second != value) return false;
  }
  return true;
}

bool SameTrainer(const Cell& a, const Cell& b) {
  return a.Trainer() == b.Trainer() && a.run.world_size == b.run.world_size &&
         SameMachine(a.run, b.run);
}

}  // namespace

double StepSeconds(const Cell& cell) {
  return static_cast<double>(cell.global_batch) / cell.ExamplesPerSecond();
}

double WorkPerRank(const Cell& cell) {
  return static_cast<double>(cell.global_batch) /
         static_cast<double>(cell.run.world_size);
}

double ExamplesPerPass(const Cell& cell) {
  const auto flag = cell.run.flags.find("batch_size");
  double examples = 0;
  if (flag != cell.run.flags.end() &&
      absl::SimpleAtod(flag->second, &examples) && examples > 0) {
    return examples;
  }
  return cell.rank_batch;
}

double RanksPerModel(const Cell& cell) {
  if (cell.pipelines.empty()) return 1;
  return static_cast<double>(cell.pipelines[0].pipeline_size);
}

const CellLedger* WithPassesOf(const Cell& cell, const Cell& base,
                               absl::Span<const CellLedger> cells) {
  const auto distance = [&cell](const CellLedger& other) {
    return std::abs(WorkPerRank(*other.cell) - WorkPerRank(cell));
  };
  const CellLedger* nearest = nullptr;
  for (const CellLedger& other : cells) {
    if (other.cell->IsAblation() || !SameTrainer(*other.cell, base) ||
        !SameFlags(other.cell->run, base.run, /*with_shape=*/false) ||
        ExamplesPerPass(*other.cell) != ExamplesPerPass(cell)) {
      continue;
    }
    if (nearest == nullptr || distance(other) < distance(*nearest)) {
      nearest = &other;
    }
  }
  return nearest;
}

const CellLedger* WithoutCommunication(const Cell& cell,
                                       absl::Span<const CellLedger> cells) {
  if (cell.IsAblation()) return nullptr;
  for (const CellLedger& other : cells) {
    if (other.cell->IsAblation() && SameTrainer(*other.cell, cell) &&
        SameFlags(other.cell->run, cell.run, /*with_shape=*/true) &&
        other.cell->global_batch == cell.global_batch &&
        ExamplesPerPass(*other.cell) == ExamplesPerPass(cell)) {
      return &other;
    }
  }
  return nullptr;
}

}  // namespace rankwise

#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/ledger/ledger.h"
#include "analysis/stats/statistics.h"
#include "records/run_origin.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

bool SameMachine(const RunRecord& a, const RunRecord& b) {
  return a.threads_per_rank == b.threads_per_rank && a.devices == b.devices &&
         a.host.cpu_model == b.host.cpu_model &&
         a.versions.torch == b.versions.torch && a.source_hash == b.source_hash;
}

// Flags that only one of the runs has, for example of newer code, may differ.
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
         a.hosts == b.hosts && SameMachine(a.run, b.run);
}

// Returns the duration of one step's examples at the cell's throughput: its
// global batch over the geometric mean of its repetitions' examples/s.
double StepSeconds(const Cell& cell) {
  return cell.global_batch / cell.ExamplesPerSecond();
}

// Returns the examples per step and rank.
double WorkPerRank(const Cell& cell) {
  return static_cast<double>(cell.global_batch) / cell.run.world_size;
}

// Returns the examples of one forward and backward pass: --batch_size, divided
// by the replicas that share it; the batch per rank if the run has no such
// flag.
double ExamplesPerPass(const Cell& cell) {
  const double examples = NumberFlagOf(cell.run, "batch_size", 0) /
                          static_cast<double>(ReplicasOf(cell.run));
  return examples > 0 ? examples : cell.rank_batch;
}

// Returns the number of ranks that divide the update of one model copy: those
// over which the model is partitioned, times, with ZeRO, those that shard each
// part.
double RanksPerUpdate(const Cell& cell) {
  const int64_t stages =
      cell.pipelines.empty() ? 1 : cell.pipelines[0].pipeline_size;
  const auto cut = static_cast<double>(stages * AxisSize(cell.run, "tp"));
  if (NumberFlagOf(cell.run, "zero", 0) == 0) return cut;
  const double shards = NumberFlagOf(cell.run, "shard_ranks", 0);
  return cut *
         (shards > 0 ? shards : static_cast<double>(AxisSize(cell.run, "dp")));
}

// Returns the cell, possibly the base, of `base`'s trainer, world size, hosts
// and flags whose passes have as many examples as `cell`'s; if there are
// several, the one with the nearest work per rank. nullptr if there is none.
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

// Returns the ablation that differs from `cell` only in skip_communication, or
// nullptr.
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

// Losses below this share of the step are rounding errors.
constexpr double kNothing = 1e-12;

using LedgerFigure = std::function<double(const Ledger&)>;  // linear

// A sum of figures over several cells' ledgers.
class LedgerSum {
 public:
  void Add(double factor, const CellLedger& from, const LedgerFigure& figure) {
    seconds_ += factor * figure(from.ledger);
    std::vector<double>& runs = runs_[from.cell];
    runs.resize(from.repetitions.size());
    for (size_t i = 0; i < runs.size(); ++i) {
      runs[i] += factor * figure(from.repetitions[i]);
    }
  }

  double seconds() const { return seconds_; }

  // Returns half the width of the sum's 95 % interval.
  double HalfWidth() const {
    std::vector<std::vector<double>> samples;
    for (const auto& [cell, runs] : runs_) samples.push_back(runs);
    return HalfWidthOfSum(samples);
  }

 private:
  double seconds_ = 0;
  std::map<const Cell*, std::vector<double>> runs_;
};

// Computes the losses of a step of `cell` relative to one of `base`.
class Explainer {
 public:
  Explainer(absl::Span<const CellLedger> cells, const CellLedger& base,
            const CellLedger& cell, Scaling scaling)
      : cells_(cells),
        base_(base),
        cell_(cell),
        work_(WorkPerRank(*cell.cell) / WorkPerRank(*base.cell)),
        communication_(cell.ledger.IsCaptured()
                           ? LossCause::kCommInGraph
                           : LossCause::kCommSlowsCompute) {
    result_.cell = cell.cell;
    result_.base = base.cell;
    result_.scaling = scaling;
    result_.ideal_seconds = work_ * StepSeconds(*base.cell);
    result_.limit_seconds =
        result_.ideal_seconds * ModelFlopsUtilization(*base.cell);
    result_.measured_seconds = StepSeconds(*cell.cell);
  }

  Waterfall Explain() {
    AddCompute();
    MergeCaptured();
    constexpr LossCause kExposed[] = {
        LossCause::kExposedTp, LossCause::kExposedCp, LossCause::kExposedPp,
        LossCause::kExposedDp};
    static_assert(std::size(kExposed) == std::size(kExposedAxes));
    for (size_t i = 0; i < std::size(kExposed); ++i)
      AddDifference(kExposed[i], Part(kExposedAxes[i].seconds));
    AddDifference(LossCause::kBubble, Part(&LedgerParts::bubble_seconds));
    AddDifference(LossCause::kImbalance, [](const Ledger& ledger) {
      return ledger.imbalance_seconds - ledger.noise_seconds;
    });
    AddDifference(LossCause::kNoise, &Ledger::noise_seconds);
    AddDifference(LossCause::kDataWait, Part(&LedgerParts::data_wait_seconds));
    double rest = result_.measured_seconds - result_.ideal_seconds;
    for (const Loss& loss : result_.losses) rest -= loss.seconds;
    // Uses the residual's interval: the other losses account for the rest of
    // each run's step.
    Add(LossCause::kRest, rest,
        Difference(Part(&LedgerParts::residual_seconds)).HalfWidth());
    return std::move(result_);
  }

 private:
  static LedgerFigure Part(double LedgerParts::*part) {
    return [part](const Ledger& ledger) { return ledger.critical.*part; };
  }

  // Returns the cell's figure minus the base's, scaled to the same work.
  LedgerSum Difference(const LedgerFigure& figure) const {
    LedgerSum difference;
    difference.Add(1, cell_, figure);
    difference.Add(-work_, base_, figure);
    return difference;
  }

  // Adds the causes within the computation: means over the ranks, without
  // imbalance.
  void AddCompute() {
    const Cell& cell = *cell_.cell;
    const Cell& base = *base_.cell;
    const bool captured = cell_.ledger.IsCaptured();
    const CellLedger* alone = WithPassesOf(cell, base, cells_);
    if (alone == nullptr && ExamplesPerPass(cell) == ExamplesPerPass(base)) {
      alone = &base_;
    }
    if (alone == nullptr) {
      Merge(LossCause::kSmallerBatch, LossCause::kSharedMachine,
            absl::StrCat("as ", base.Name(), " was not run with --batch_size=",
                         BatchText(ExamplesPerPass(cell))));
    }
    const CellLedger* without = WithoutCommunication(cell, cells_);
    if (without != nullptr && without->ledger.IsCaptured() != captured) {
      without = nullptr;
    }
    if (without == nullptr) {
      Merge(alone == nullptr ? LossCause::kSmallerBatch
                             : LossCause::kSharedMachine,
            communication_,
            captured ? "for want of the same run, captured, with "
                       "--skip_communication"
                     : "for want of the same run with --skip_communication");
    }
    const LedgerFigure compute = &Ledger::MeanComputeSeconds;
    LedgerSum smaller, shared, slowed;
    LedgerSum& undisturbed = alone == nullptr ? smaller : shared;
    undisturbed.Add(1, without == nullptr ? cell_ : *without, compute);
    if (alone != nullptr) {
      AddComputeAlone(1, *alone, &smaller);
      AddComputeAlone(-1, *alone, &shared);
    }
    smaller.Add(-work_, base_, compute);
    if (without != nullptr) {
      slowed.Add(1, cell_, compute);
      slowed.Add(-1, *without, compute);
    }
    Add(LossCause::kSmallerBatch, smaller);
    Add(LossCause::kSharedMachine, shared);
    Add(communication_, slowed);
  }

  // Adds `factor` times the compute seconds of a rank of `cell_` whose passes
  // were as fast as those of `alone`, which have the same number of examples.
  // The optimizer's work is proportional to the rank's share of the update, not
  // to its examples.
  void AddComputeAlone(double factor, const CellLedger& alone,
                       LedgerSum* sum) const {
    sum->Add(factor * WorkPerRank(*cell_.cell) / WorkPerRank(*alone.cell),
             alone, [](const Ledger& ledger) {
               return ledger.MeanComputeSeconds() - ledger.optimizer_seconds;
             });
    sum->Add(factor * RanksPerUpdate(*alone.cell) / RanksPerUpdate(*cell_.cell),
             alone, &Ledger::optimizer_seconds);
  }

  void AddDifference(LossCause cause, const LedgerFigure& figure) {
    Add(cause, Difference(figure));
  }

  void Add(LossCause cause, const LedgerSum& sum) {
    Add(cause, sum.seconds(), sum.HalfWidth());
  }

  void Add(LossCause cause, double seconds, double half_width) {
    if (std::abs(seconds) <= kNothing * result_.measured_seconds) return;
    result_.losses.push_back({cause,
                              seconds,
                              seconds / result_.measured_seconds,
                              {seconds - half_width, seconds + half_width}});
  }

  void Merge(LossCause cause, LossCause other, absl::string_view why) {
    result_.merged.push_back(absl::StrCat(
        LossName(cause), " not separated from ", LossName(other), ", ", why));
  }

  // Merges the causes that cannot be separated in a captured step.
  void MergeCaptured() {
    const bool captured = cell_.ledger.IsCaptured();
    if (captured && cell_.cell->run.world_size > 1) {
      Merge(LossCause::kCommInGraph, LossCause::kImbalance,
            "as a step was one graph launch: --cuda_graph=false separates "
            "them");
    }
    if (captured == base_.ledger.IsCaptured()) return;
    const Cell& by_graph = captured ? *cell_.cell : *base_.cell;
    const Cell& by_parts = captured ? *base_.cell : *cell_.cell;
    result_.merged.push_back(absl::StrCat(
        "the losses include the time saved by capturing a step, as ",
        by_graph.Name(), " was captured and ", by_parts.Name(), " was not"));
  }

  const absl::Span<const CellLedger> cells_;
  const CellLedger& base_;
  const CellLedger& cell_;
  const double work_;  // ratio of a rank's work in the cell to the base's
  // cause measured by an ablation within compute
  const LossCause communication_;
  Waterfall result_;
};

absl::Status CheckLedger(const CellLedger& ledger) {
  if (ledger.cell == nullptr) {
    return absl::FailedPreconditionError("a ledger without its cell");
  }
  if (ledger.ledger.critical.Total() > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ledger.cell->Name(), " has no ledger"));
}

Ablation Compare(const CellLedger& with, const CellLedger& without) {
  const LedgerParts& parts = with.ledger.critical;
  const LedgerParts& left = without.ledger.critical;
  Ablation result;
  result.cell = with.cell;
  result.without = without.cell;
  result.saved_seconds = StepSeconds(*with.cell) - StepSeconds(*without.cell);
  result.exposed_seconds = parts.ExposedSeconds() - left.ExposedSeconds();
  result.bubble_seconds = parts.bubble_seconds - left.bubble_seconds;
  result.slowed_seconds = parts.compute_seconds - left.compute_seconds;
  result.captured = with.ledger.IsCaptured();
  result.disagreement = result.exposed_disagreement =
      std::numeric_limits<double>::quiet_NaN();
  if (result.saved_seconds > 0 && !result.captured) {
    result.disagreement = (result.exposed_seconds + result.bubble_seconds +
                           result.slowed_seconds) /
                              result.saved_seconds -
                          1;
    result.exposed_disagreement =
        result.exposed_seconds / result.saved_seconds - 1;
  }
  return result;
}

}  // namespace

absl::StatusOr<Waterfall> ExplainLoss(absl::Span<const CellLedger> cells,
                                      const CellLedger& base,
                                      const CellLedger& cell, Scaling scaling,
                                      const ComparisonConfig& config) {
  for (const CellLedger* ledger : {&base, &cell}) {
    RETURN_IF_ERROR(CheckLedger(*ledger));
  }
  RETURN_IF_ERROR(CheckEfficiency(*base.cell, *cell.cell, scaling, config));
  return Explainer(cells, base, cell, scaling).Explain();
}

std::vector<Ablation> FindAblations(absl::Span<const CellLedger> cells) {
  std::vector<Ablation> ablations;
  for (const CellLedger& cell : cells) {
    const CellLedger* without = WithoutCommunication(*cell.cell, cells);
    if (without != nullptr) ablations.push_back(Compare(cell, *without));
  }
  return ablations;
}

}  // namespace rankwise

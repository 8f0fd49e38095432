#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/ledger/related_cells.h"
#include "analysis/ledger/waterfall.h"

namespace rankwise {
namespace {

// A loss of less than this share of the step is a rounding error.
constexpr double kNothing = 1e-12;

// The causes within the computation: mean over ranks, imbalance left out.
struct ComputeLoss {
  double smaller_batch = 0;
  double shared_machine = 0;
  double communication = 0;  // beside computing, or within captured steps
};

class Explainer {
 public:
  Explainer(absl::Span<const CellLedger> cells, const CellLedger& base,
            const CellLedger& cell)
      : cells_(cells),
        base_(base),
        cell_(cell),
        work_(WorkPerRank(*cell.cell) / WorkPerRank(*base.cell)),
        communication_(cell.ledger.IsCaptured()
                           ? LossCause::kCommInGraph
                           : LossCause::kCommBesideCompute) {}

  Waterfall Explain(Scaling scaling);

 private:
  ComputeLoss SplitCompute();
  double ComputeAlone(const CellLedger& alone) const;
  double SlowedByCommunication(const CellLedger* without) const;
  void AddBeyondBase(LossCause cause, double seconds, double base_seconds);
  void Add(LossCause cause, double seconds);
  void Merge(LossCause cause, LossCause other, const std::string& run);
  void MergeCaptured();

  const absl::Span<const CellLedger> cells_;
  const CellLedger& base_;
  const CellLedger& cell_;
  const double work_;  // a rank's work in the cell over one's in the base
  // What an ablation tells of communication within compute.
  const LossCause communication_;
  Waterfall result_;
};

// What a rank of `cell_` would compute if its passes were as fast as those of
// `alone`, whose passes hold as many examples. The optimizer's work follows the
// rank's share of the model, not its examples.
double Explainer::ComputeAlone(const CellLedger& alone) const {
  const double optimizer = alone.ledger.optimizer_seconds;
  const double passes = alone.ledger.MeanComputeSeconds() - optimizer;
  return passes * WorkPerRank(*cell_.cell) / WorkPerRank(*alone.cell) +
         optimizer * RanksPerModel(*alone.cell) / RanksPerModel(*cell_.cell);
}

void Explainer::Merge(LossCause cause, LossCause other,
                      const std::string& run) {
  result_.merged.push_back(absl::StrCat(
      LossName(cause), " not told apart from ", LossName(other), ", as ", run));
}

// What a captured step hides, whatever else was run.
void Explainer::MergeCaptured() {
  const bool captured = cell_.ledger.IsCaptured();
  if (captured && cell_.cell->run.world_size > 1) {
    Merge(LossCause::kCommInGraph, LossCause::kImbalance,
          absl::StrCat("a step of ", cell_.cell->Name(),
                       " was one graph launch: --cuda_graph=false would tell"));
  }
  if (captured == base_.ledger.IsCaptured()) return;
  const Cell& by_graph = captured ? *cell_.cell : *base_.cell;
  const Cell& by_parts = captured ? *base_.cell : *cell_.cell;
  result_.merged.push_back(absl::StrCat(
      "what capturing a step saves is in the losses, as ", by_graph.Name(),
      " was captured and ", by_parts.Name(), " was not"));
}

// Communication cannot speed computing up: where the run without it computed
// longer, the machine was slower then, and nothing is known. 0 is that, too.
double Explainer::SlowedByCommunication(const CellLedger* without) const {
  if (without == nullptr) return 0;
  const double slowed =
      cell_.ledger.MeanComputeSeconds() - without->ledger.MeanComputeSeconds();
  return slowed > kNothing * StepSeconds(*cell_.cell) ? slowed : 0;
}

ComputeLoss Explainer::SplitCompute() {
  const Cell& cell = *cell_.cell;
  const Cell& base = *base_.cell;
  const CellLedger* alone = WithPassesOf(cell, base, cells_);
  if (alone == nullptr && ExamplesPerPass(cell) == ExamplesPerPass(base)) {
    alone = &base_;
  }
  const CellLedger* without = WithoutCommunication(cell, cells_);
  if (without != nullptr &&
      without->ledger.IsCaptured() != cell_.ledger.IsCaptured()) {
    without = nullptr;
  }
  const double ideal = work_ * base_.ledger.MeanComputeSeconds();
  const double with = cell_.ledger.MeanComputeSeconds();
  const double slowed = SlowedByCommunication(without);
  if (alone == nullptr) {
    Merge(LossCause::kSmallerBatch, LossCause::kSharedMachine,
          absl::StrCat(base.Name(), " was not run with --batch_size=",
                       BatchText(ExamplesPerPass(cell))));
  }
  if (without == nullptr || slowed == 0) {
    Merge(
        alone == nullptr ? LossCause::kSmallerBatch : LossCause::kSharedMachine,
        communication_,
        absl::StrCat(
            cell.Name(), ", batch ", BatchText(cell.rank_batch),
            without == nullptr
                ? absl::StrCat(", was not run with --skip_communication",
                               cell_.ledger.IsCaptured() ? " and captured" : "")
                : std::string(", computed no faster with --skip_communication: "
                              "a quieter "
                              "machine or more --ablations would tell")));
  }
  if (alone == nullptr) return {with - ideal - slowed, 0, slowed};
  const double by_itself = ComputeAlone(*alone);
  return {by_itself - ideal, with - slowed - by_itself, slowed};
}

void Explainer::Add(LossCause cause, double seconds) {
  if (std::abs(seconds) <= kNothing * result_.measured_seconds) return;
  result_.losses.push_back(
      {cause, seconds, seconds / result_.measured_seconds});
}

void Explainer::AddBeyondBase(LossCause cause, double seconds,
                              double base_seconds) {
  Add(cause, seconds - work_ * base_seconds);
}

Waterfall Explainer::Explain(Scaling scaling) {
  const Ledger& base = base_.ledger;
  const Ledger& cell = cell_.ledger;
  result_.cell = cell_.cell;
  result_.base = base_.cell;
  result_.scaling = scaling;
  result_.ideal_seconds = work_ * StepSeconds(*base_.cell);
  result_.measured_seconds = StepSeconds(*cell_.cell);
  const ComputeLoss compute = SplitCompute();
  MergeCaptured();
  Add(LossCause::kSmallerBatch, compute.smaller_batch);
  Add(LossCause::kSharedMachine, compute.shared_machine);
  Add(communication_, compute.communication);
  AddBeyondBase(LossCause::kExposedComm, cell.critical.exposed_comm_seconds,
                base.critical.exposed_comm_seconds);
  AddBeyondBase(LossCause::kBubble, cell.critical.bubble_seconds,
                base.critical.bubble_seconds);
  AddBeyondBase(LossCause::kImbalance,
                cell.imbalance_seconds - cell.noise_seconds,
                base.imbalance_seconds - base.noise_seconds);
  AddBeyondBase(LossCause::kNoise, cell.noise_seconds, base.noise_seconds);
  AddBeyondBase(LossCause::kDataWait, cell.critical.data_wait_seconds,
                base.critical.data_wait_seconds);
  double rest = result_.measured_seconds - result_.ideal_seconds;
  for (const Loss& loss : result_.losses) rest -= loss.seconds;
  Add(LossCause::kRest, rest);
  return std::move(result_);
}

absl::Status CheckLedger(const CellLedger& ledger) {
  if (ledger.cell == nullptr) {
    return absl::FailedPreconditionError("a ledger without its cell");
  }
  if (ledger.ledger.critical.Total() > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(ledger.cell->Name(), " has no ledger"));
}

}  // namespace

absl::StatusOr<Waterfall> ExplainLoss(absl::Span<const CellLedger> cells,
                                      const CellLedger& base,
                                      const CellLedger& cell, Scaling scaling,
                                      const ComparisonConfig& config) {
  for (const CellLedger* ledger : {&base, &cell}) {
    absl::Status status = CheckLedger(*ledger);
    if (!status.ok()) return status;
  }
  absl::Status status =
      CheckEfficiency(*base.cell, *cell.cell, scaling, config);
  if (!status.ok()) return status;
  return Explainer(cells, base, cell).Explain(scaling);
}

}  // namespace rankwise

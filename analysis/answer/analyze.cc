#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/answer/answer.h"
#include "analysis/answer/findings.h"
#include "analysis/answer/pictures.h"
#include "analysis/answer/scaling_rows.h"
#include "analysis/compare/call_configurations.h"

namespace rankwise {
namespace {

constexpr int kSizesAhead = 3;  // world sizes that are predicted, by doubling

// The repetition in the middle by the time of its critical rank: one whole
// ledger, so that its parts still add up.
Ledger MedianLedger(std::vector<Ledger> ledgers) {
  std::sort(ledgers.begin(), ledgers.end(),
            [](const Ledger& a, const Ledger& b) {
              return a.critical.Total() < b.critical.Total();
            });
  return std::move(ledgers[(ledgers.size() - 1) / 2]);
}

bool MeasuresCalls(const RunTrace& run) {
  return !run.ranks.empty() && run.ranks[0].run.binary == "comm_bench";
}

class Analysis {
 public:
  Analysis(std::vector<RunTrace> runs, const AnswerConfig& config)
      : config_(config),
        runs_(std::move(runs)),
        left_out_(TornLines(runs_)),
        answer_(std::make_unique<Answer>()) {}

  std::unique_ptr<Answer> Run() {
    answer_->cells = GroupIntoCells(runs_, config_.throughput, &left_out_);
    answer_->rows = ScalingRows(answer_->cells, config_);
    answer_->series = ScalingSeriesOf(answer_->rows, config_);
    MeasureLedgers();
    ExplainLosses();
    answer_->ablations = FindAblations(answer_->ledgers);
    FitNetworks();
    answer_->calls = CallConfigurations(runs_, CallUnit::kLaunch, &left_out_);
    answer_->timelines = TimelinePictures(answer_->cells, runs_);
    answer_->losses = LossCurves(answer_->cells, runs_);
    WriteNotes();
    answer_->findings = FindingsOf(*answer_);
    return std::move(answer_);
  }

 private:
  void MeasureLedgers();
  void AddStraggler(const Cell& cell,
                    const std::vector<const RunTrace*>& repetitions);
  void ExplainLosses();
  void FitNetworks();
  void Predict(const NetworkModel& network);
  void ScoreOn(int64_t fit_up_to, const std::string& backend);
  void PredictAhead(const Predictor& predictor, int64_t largest);
  void WriteNotes();
  const CellLedger* LedgerOf(const Cell* cell) const;

  const AnswerConfig& config_;
  const std::vector<RunTrace> runs_;
  std::vector<std::string> left_out_;
  std::unique_ptr<Answer> answer_;
};

void Analysis::MeasureLedgers() {
  for (const Cell& cell : answer_->cells) {
    std::vector<Ledger> ledgers;
    std::vector<const RunTrace*> measured;
    for (size_t index : cell.run_indices) {
      absl::StatusOr<Ledger> ledger =
          MeasureLedger(runs_[index], config_.throughput);
      if (ledger.ok()) {
        ledgers.push_back(*std::move(ledger));
        measured.push_back(&runs_[index]);
      } else {
        left_out_.push_back(
            absl::StrCat("of the ledger, ", ledger.status().message()));
      }
    }
    if (ledgers.empty()) continue;
    answer_->ledgers.push_back({&cell, MedianLedger(std::move(ledgers))});
    AddStraggler(cell, measured);
  }
}

void Analysis::AddStraggler(const Cell& cell,
                            const std::vector<const RunTrace*>& repetitions) {
  if (cell.IsAblation()) return;
  if (cell.run.world_size > 1 && LedgerOf(&cell)->ledger.IsCaptured()) {
    left_out_.push_back(absl::StrCat(
        "of the search for a straggler, ", cell.Name(), ", batch ",
        BatchText(cell.rank_batch),
        ": within a captured step nobody sees who waits for whom"));
    return;
  }
  const absl::StatusOr<std::optional<Straggler>> straggler =
      FindStraggler(repetitions, config_.throughput);
  if (!straggler.ok()) {
    left_out_.push_back(absl::StrCat("of the search for a straggler, ",
                                     straggler.status().message()));
  } else if (straggler->has_value()) {
    answer_->stragglers.push_back({&cell, **straggler});
  }
}

const CellLedger* Analysis::LedgerOf(const Cell* cell) const {
  for (const CellLedger& ledger : answer_->ledgers) {
    if (ledger.cell == cell) return &ledger;
  }
  return nullptr;
}

void Analysis::ExplainLosses() {
  for (const ScalingSeries& series : answer_->series) {
    for (const ScalingRow* row : series.rows) {
      if (row->cell->run.world_size == row->base->run.world_size) continue;
      const CellLedger* base = LedgerOf(row->base);
      const CellLedger* cell = LedgerOf(row->cell);
      if (base == nullptr || cell == nullptr) continue;
      absl::StatusOr<Waterfall> waterfall =
          ExplainLoss(answer_->ledgers, *base, *cell, series.scaling,
                      ComparisonOf(config_));
      if (waterfall.ok()) {
        answer_->waterfalls.push_back(*std::move(waterfall));
      } else {
        answer_->notes.push_back(
            absl::StrCat("No waterfall: ", waterfall.status().message()));
      }
    }
  }
}

// Networks, and what they let predict, one per backend.
void Analysis::FitNetworks() {
  std::set<std::string> backends;
  for (const RunTrace& run : runs_) {
    if (MeasuresCalls(run)) backends.insert(run.ranks[0].run.backend);
  }
  for (const std::string& backend : backends) {
    absl::StatusOr<NetworkModel> network =
        FitNetwork(runs_, {}, nullptr, {.backend = backend});
    if (network.ok()) {
      Predict(*network);
      answer_->networks.push_back(*std::move(network));
    } else {
      answer_->notes.push_back(absl::StrCat("No cost model of ", backend, ": ",
                                            network.status().message()));
    }
  }
}

// What a backend's trainers would take at sizes that they did not run at, and,
// where they ran at several, how right such predictions are.
void Analysis::Predict(const NetworkModel& network) {
  std::set<int64_t> sizes;
  std::set<std::string> backends;
  for (const Cell& cell : answer_->cells) {
    if (cell.IsAblation()) continue;
    sizes.insert(cell.run.world_size);
    backends.insert(cell.run.backend);
  }
  if (backends.count(network.backend) == 0) return;
  absl::StatusOr<Predictor> predictor =
      Predictor::Create(runs_, network, config_.throughput);
  if (!predictor.ok()) {
    answer_->notes.push_back(
        absl::StrCat("No prediction: ", predictor.status().message()));
    return;
  }
  if (sizes.size() > 1) ScoreOn(*std::next(sizes.rbegin()), network.backend);
  PredictAhead(*predictor, *sizes.rbegin());
}

// Of one rank there is no communication to fit, so that that of two is allowed
// always.
void Analysis::ScoreOn(int64_t fit_up_to, const std::string& backend) {
  const absl::StatusOr<NetworkModel> network = FitNetwork(
      runs_, {}, nullptr,
      {.backend = backend, .most_ranks = std::max<int64_t>(2, fit_up_to)});
  absl::StatusOr<Score> score =
      network.ok() ? ScorePredictions(runs_, answer_->cells, fit_up_to,
                                      *network, config_.throughput)
                   : network.status();
  if (score.ok()) {
    answer_->scores.push_back(*std::move(score));
  } else {
    answer_->notes.push_back(
        absl::StrCat("No score: ", score.status().message()));
  }
}

// Data parallelism by weak scaling, with the batch per rank of the largest size
// that ran.
void Analysis::PredictAhead(const Predictor& predictor, int64_t largest) {
  const Cell* last = nullptr;
  for (const Cell& cell : answer_->cells) {
    if (cell.run.binary != "ddp" || cell.IsAblation()) continue;
    if (cell.run.world_size != largest) continue;
    if (last == nullptr || cell.rank_batch > last->rank_batch) last = &cell;
  }
  if (last == nullptr) return;
  for (int ahead = 1; ahead <= kSizesAhead; ++ahead) {
    Layout layout;
    layout.dp = largest << ahead;
    layout.batch_per_rank = static_cast<int64_t>(last->rank_batch);
    absl::StatusOr<Prediction> prediction = predictor.Predict(layout);
    if (!prediction.ok()) {
      answer_->notes.push_back(absl::StrCat("No prediction of ", layout.Name(),
                                            ": ",
                                            prediction.status().message()));
      return;
    }
    answer_->predictions.push_back(*std::move(prediction));
  }
}

// What the reader must know to trust the figures.
void Analysis::WriteNotes() {
  std::vector<std::string> notes;
  bool oversubscribed = false;
  for (const ScalingRow& row : answer_->rows) {
    oversubscribed |= row.cell->oversubscribed;
    if (row.scaling == "base") continue;
    if (!row.efficiency.ok()) {
      notes.push_back(
          absl::StrCat("No efficiency: ", row.efficiency.status().message()));
    } else if (!row.efficiency->warning.empty()) {
      notes.push_back(absl::StrCat("! Forced: ", row.efficiency->warning));
    }
  }
  if (oversubscribed) {
    notes.push_back(
        "* more threads than cores: these rows say how the ranks share the "
        "cores, not how training scales");
  }
  for (const std::string& reason : left_out_) {
    notes.push_back(absl::StrCat("Left out: ", reason));
  }
  for (const Waterfall& waterfall : answer_->waterfalls) {
    for (const std::string& merged : waterfall.merged) {
      notes.push_back(absl::StrCat(WaterfallName(waterfall), ": ", merged));
    }
  }
  notes.insert(notes.end(), answer_->notes.begin(), answer_->notes.end());
  answer_->notes.clear();
  std::set<std::string> said;
  for (const std::string& note : notes) {
    if (said.insert(note).second) answer_->notes.push_back(note);
  }
}

}  // namespace

std::unique_ptr<Answer> Analyze(std::vector<RunTrace> runs,
                                const AnswerConfig& config) {
  return Analysis(std::move(runs), config).Run();
}

}  // namespace rankwise

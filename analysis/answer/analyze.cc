#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/plan/score.h"
#include "analysis/runs/comm_bench.h"

namespace rankwise {
namespace {

// Returns, per step, the mean loss over all examples of the ranks that report
// one. Omits steps whose mean is not finite, which fp16's loss scaling skips.
LossCurve CurveOf(const Cell& cell, const RunTrace& run) {
  struct Sum {
    double loss = 0, examples = 0;
  };
  std::map<int64_t, Sum> sums;
  for (const RankTrace& rank : run.ranks) {
    for (const StepRecord& step : rank.steps) {
      const double examples = static_cast<double>(step.examples);
      sums[step.step].loss += step.loss * examples;
      sums[step.step].examples += examples;
    }
  }
  LossCurve curve;
  curve.name = CellLabel(cell);
  for (const auto& [step, sum] : sums) {
    if (sum.examples == 0 || !std::isfinite(sum.loss)) continue;
    curve.steps.push_back(step);
    curve.losses.push_back(sum.loss / sum.examples);
  }
  return curve;
}

// Returns the timelines of the first replica.
TimelinePicture PictureOf(const Cell& cell, const RunTrace& run) {
  TimelinePicture picture;
  picture.cell = &cell;
  for (const RankTrace& rank : run.ranks) {
    if (rank.schedules.empty() || rank.schedules[0].replica != 0) continue;
    for (const TimelineRecord& timeline : rank.timelines) {
      (timeline.origin == "measured" ? picture.measured : picture.simulated)
          .push_back(timeline);
    }
  }
  return picture;
}

// Returns each reason why causes were not separated once, after the names of
// all waterfalls that have it: "ddp on 2 ranks, strong scaling; fsdp ...:
// smaller batches not ...".
std::vector<std::string> MergedLosses(absl::Span<const Waterfall> waterfalls) {
  std::vector<std::string> reasons;
  std::map<std::string, std::vector<std::string>> names;  // by reason
  for (const Waterfall& waterfall : waterfalls) {
    for (const std::string& reason : waterfall.merged) {
      if (names[reason].empty()) reasons.push_back(reason);
      names[reason].push_back(WaterfallName(waterfall));
    }
  }
  std::vector<std::string> notes;
  for (const std::string& reason : reasons) {
    notes.push_back(
        absl::StrCat(absl::StrJoin(names[reason], "; "), ": ", reason));
  }
  return notes;
}

constexpr int kSizesAhead = 3;  // number of doublings of the world size

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
    answer_->layouts = CompareLayouts(*answer_);
    ScorePlanner();
    answer_->ablations = FindAblations(answer_->ledgers);
    FitNetworks();
    answer_->calls = CallConfigurations(runs_, CallUnit::kLaunch, &left_out_);
    AddLearning();
    AddPictures();
    WriteNotes();
    answer_->findings = FindingsOf(*answer_);
    return std::move(answer_);
  }

 private:
  // Adds a result to `results` and returns true, or adds a note with its error.
  template <typename T>
  bool Keep(absl::string_view what, absl::StatusOr<T> result,
            std::vector<T>* results) {
    if (result.ok()) {
      results->push_back(*std::move(result));
      return true;
    }
    answer_->notes.push_back(
        absl::StrCat("No ", what, ": ", result.status().message()));
    return false;
  }

  void MeasureLedgers() {
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
      const Ledger mean = MeanLedger(ledgers);
      answer_->ledgers.push_back({&cell, mean, std::move(ledgers)});
      AddStraggler(answer_->ledgers.back(), measured);
    }
  }

  void AddStraggler(const CellLedger& of_cell,
                    const std::vector<const RunTrace*>& repetitions) {
    const Cell& cell = *of_cell.cell;
    if (cell.IsAblation()) return;
    absl::StatusOr<std::optional<Straggler>> straggler = absl::UnknownError(
        absl::StrCat(CellLabel(cell),
                     ": the steps are captured, so that it is "
                     "not recorded which rank waits for "
                     "which"));
    if (cell.run.world_size == 1 || !of_cell.ledger.IsCaptured()) {
      straggler = FindStraggler(repetitions, config_.throughput);
    }
    if (!straggler.ok()) {
      left_out_.push_back(absl::StrCat("of the search for a straggler, ",
                                       straggler.status().message()));
    } else if (straggler->has_value()) {
      answer_->stragglers.push_back({&cell, **straggler});
    }
  }

  const CellLedger* LedgerOf(const Cell* cell) const {
    const auto found = absl::c_find_if(
        answer_->ledgers,
        [cell](const CellLedger& ledger) { return ledger.cell == cell; });
    return found == answer_->ledgers.end() ? nullptr : &*found;
  }

  void ExplainLosses() {
    for (const ScalingSeries& series : answer_->series) {
      for (const ScalingRow* row : series.rows) {
        if (row->cell->run.world_size == row->base->run.world_size) continue;
        const CellLedger* base = LedgerOf(row->base);
        const CellLedger* cell = LedgerOf(row->cell);
        if (base == nullptr || cell == nullptr) continue;
        Keep("waterfall",
             ExplainLoss(answer_->ledgers, *base, *cell, series.scaling,
                         config_.comparison),
             &answer_->waterfalls);
      }
    }
  }

  // Compares the planner with the recorded layouts of gpt, the only model that
  // it knows. Studies of other models get neither a score nor a note.
  void ScorePlanner() {
    const bool has_layouts =
        absl::c_any_of(answer_->cells, [](const Cell& cell) {
          return cell.run.world_size > 1 && !cell.IsAblation() &&
                 FlagOf(cell.run, "model") == "gpt";
        });
    if (!has_layouts) return;
    absl::StatusOr<Score> score =
        plan::ScorePlans(runs_, {.throughput = config_.throughput});
    if (!score.ok()) {
      answer_->notes.push_back(
          absl::StrCat("No score of the planner: ", score.status().message()));
      return;
    }
    for (const std::string& reason : std::exchange(score->left_out, {})) {
      if (absl::c_linear_search(left_out_, reason)) continue;
      answer_->notes.push_back(
          absl::StrCat("Left out of the planner's score: ", reason));
    }
    answer_->plan_score = *std::move(score);
  }

  // Fits one network per measured backend, and predicts with it.
  void FitNetworks() {
    std::set<std::string> backends;
    for (const RunTrace& run : runs_) {
      for (const RankTrace& rank : run.ranks) {
        if (IsCommBench(rank.run)) backends.insert(rank.run.backend);
      }
    }
    for (const std::string& backend : backends) {
      absl::StatusOr<NetworkModel> network =
          FitNetwork(runs_, nullptr, {.backend = backend});
      if (network.ok()) Predict(*network);
      Keep("cost model of " + backend, std::move(network), &answer_->networks);
    }
  }

  // Predicts the trainers' steps at larger world sizes. If they ran at several
  // sizes, also scores predictions of the larger from the smaller ones.
  void Predict(const NetworkModel& network) {
    std::set<int64_t> sizes;
    std::set<std::string> backends;
    for (const Cell& cell : answer_->cells) {
      if (cell.IsAblation()) continue;
      sizes.insert(cell.run.world_size);
      backends.insert(cell.run.backend);
    }
    if (backends.count(network.backend) == 0) return;
    absl::StatusOr<RecordedPredictor> predictor =
        RecordedPredictor::Create(runs_, network, config_.throughput);
    if (!predictor.ok()) {
      answer_->notes.push_back(
          absl::StrCat("No prediction: ", predictor.status().message()));
      return;
    }
    if (sizes.size() > 1) ScoreOn(*std::next(sizes.rbegin()), network.backend);
    PredictAhead(*predictor, *sizes.rbegin(), !network.across_hosts.empty());
  }

  // One rank has no communication to fit, so communication of two ranks is
  // always allowed.
  void ScoreOn(int64_t fit_up_to, const std::string& backend) {
    const absl::StatusOr<NetworkModel> network = FitNetwork(
        runs_, nullptr,
        {.backend = backend, .most_ranks = std::max<int64_t>(2, fit_up_to)});
    Keep("score",
         network.ok() ? ScorePredictions(runs_, answer_->cells, fit_up_to,
                                         *network, config_.throughput)
                      : network.status(),
         &answer_->scores);
  }

  // Predicts ddp by weak scaling from the largest recorded world size, with the
  // largest batch per rank there. If the link between hosts was measured
  // (`knows_link`), adds hosts with as many ranks; otherwise assumes one host.
  void PredictAhead(Predictor& predictor, int64_t largest, bool knows_link) {
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
      layout.micro_batch = static_cast<int64_t>(last->rank_batch);
      if (knows_link) layout.ranks_per_host = largest / last->hosts;
      layout.hierarchical = IsHierarchical(last->run);
      if (!Keep("prediction of " + layout.Name(), predictor.Predict(layout),
                &answer_->predictions)) {
        return;
      }
    }
  }

  void AddLearning() {
    answer_->target_loss = config_.target_loss;
    for (const Cell& cell : answer_->cells) {
      if (!cell.IsAblation())
        answer_->learning.push_back(
            LearningOf(cell, runs_, config_.target_loss));
    }
  }

  // Adds, for each cell that is not an ablation, the losses of its first
  // repetition, and the timeline and layers of the last repetition that
  // recorded them.
  void AddPictures() {
    for (const Cell& cell : answer_->cells) {
      if (cell.IsAblation()) continue;
      answer_->losses.push_back(CurveOf(cell, runs_[cell.run_indices.front()]));
      TimelinePicture picture;
      std::vector<LayerRecord> layers;
      for (size_t i = cell.run_indices.size(); i > 0; --i) {
        const RunTrace& run = runs_[cell.run_indices[i - 1]];
        if (picture.measured.empty()) picture = PictureOf(cell, run);
        if (layers.empty()) layers = run.ranks[0].layers;
      }
      if (!picture.measured.empty())
        answer_->timelines.push_back(std::move(picture));
      if (!layers.empty())
        answer_->profiles.push_back({&cell, std::move(layers)});
    }
  }

  // Collects the refusals, omissions and warnings, each once.
  void WriteNotes() {
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
    for (const std::string& restarted : LostTime(runs_)) {
      notes.push_back(absl::StrCat("Time lost: ", restarted));
    }
    for (const std::string& reason : left_out_) {
      notes.push_back(absl::StrCat("Left out: ", reason));
    }
    for (std::string& merged : MergedLosses(answer_->waterfalls)) {
      notes.push_back(std::move(merged));
    }
    notes.insert(notes.end(), answer_->notes.begin(), answer_->notes.end());
    answer_->notes.clear();
    for (const std::string& note : notes) {
      if (absl::c_linear_search(answer_->notes, note)) continue;
      answer_->notes.push_back(note);
    }
  }

  const AnswerConfig& config_;
  const std::vector<RunTrace> runs_;
  std::vector<std::string> left_out_;
  std::unique_ptr<Answer> answer_;
};

}  // namespace

std::unique_ptr<Answer> Analyze(std::vector<RunTrace> runs,
                                const AnswerConfig& config) {
  return Analysis(std::move(runs), config).Run();
}

}  // namespace rankwise

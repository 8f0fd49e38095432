#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/text_table.h"
#include "records/record.h"
#include "records/run_origin.h"
#include "records/text.h"

namespace rankwise {
namespace {

constexpr double kSignificance = 0.05;  // over all pairs of layouts
constexpr double kAsFast = 1.05;        // step time relative to the fastest
constexpr double kLessMemory = 0.9;     // ratio from which it is mentioned
constexpr double kLargerBatch = 1.1;    // likewise
constexpr size_t kExplainedLayouts = 3;

// What a layout spends its step on, and how a sentence says that it spends
// more than another.
struct StepPart {
  double seconds;
  const char* doing;
};

std::vector<StepPart> PartsOf(const Ledger& ledger) {
  const LedgerParts& parts = ledger.critical;
  return {{ledger.MeanComputeSeconds(), "computing"},
          {ledger.imbalance_seconds, "waiting for its slowest rank"},
          {parts.exposed_tp_seconds, "communicating along tp"},
          {parts.exposed_cp_seconds, "communicating along cp"},
          {parts.exposed_pp_seconds, "communicating along pp"},
          {parts.exposed_dp_seconds, "communicating along dp"},
          {parts.bubble_seconds, "in the bubble of its pipeline"},
          {parts.data_wait_seconds, "waiting for data"},
          {parts.residual_seconds, "on what the ledger does not explain"}};
}

double Examples(const LayoutRow& row) {
  return static_cast<double>(row.cell->global_batch);
}

double RankBatch(const LayoutRow& row) {
  return Examples(row) / static_cast<double>(row.cell->run.world_size);
}

// Of the same examples, what `row` spends most on beyond `best`; "" where that
// is not known.
std::string WhyBehind(const LayoutRow& best, const LayoutRow& row) {
  if (best.ledger == nullptr || row.ledger == nullptr ||
      best.ledger->IsCaptured() || row.ledger->IsCaptured()) {
    return "";
  }
  const double scale = Examples(best) / Examples(row);
  const std::vector<StepPart> parts = PartsOf(*row.ledger);
  const std::vector<StepPart> of_best = PartsOf(*best.ledger);
  size_t largest = 0;
  std::vector<double> more;
  for (size_t i = 0; i < parts.size(); ++i) {
    more.push_back(scale * parts[i].seconds - of_best[i].seconds);
    if (more[i] > more[largest]) largest = i;
  }
  if (more[largest] <= 0) return "";
  return absl::StrCat("on ", Counted(best.cell->global_batch, "example"),
                      " it spends ", MillisecondsText(more[largest]),
                      " ms more ", parts[largest].doing);
}

std::string RateText(const LayoutRow& row) {
  const ExampleUnit unit = UnitOf(row.cell->run);
  const std::string rate =
      absl::StrFormat("%.0f %s", unit.Rate(row.rate), unit.RateName());
  if (std::isnan(row.rate_interval.low)) return rate;
  return absl::StrFormat("%s, 95 %% interval [%.0f, %.0f]", rate,
                         unit.Rate(row.rate_interval.low),
                         unit.Rate(row.rate_interval.high));
}

std::string BehindText(const LayoutRow& row) {
  const Interval& interval = row.behind.interval;
  if (std::isnan(interval.low))
    return absl::StrFormat("%.2f", row.behind.value);
  return absl::StrFormat("%.2f [%.2f, %.2f]", row.behind.value, interval.low,
                         interval.high);
}

// Not separated from the fastest, and within 5 % of it.
bool IsAsFast(const LayoutRow& row) {
  return !row.separated && !(row.behind.value > kAsFast);
}

// The fastest layout, then those not separated from it.
std::vector<const LayoutRow*> Fastest(const LayoutComparison& layouts) {
  std::vector<const LayoutRow*> fastest;
  for (const LayoutRow& row : layouts.rows) {
    if (!row.separated) fastest.push_back(&row);
  }
  return fastest;
}

const LayoutRow& LeastMemory(absl::Span<const LayoutRow* const> rows) {
  return **absl::c_min_element(
      rows, [](const LayoutRow* a, const LayoutRow* b) {
        return a->cell->peak_bytes < b->cell->peak_bytes;
      });
}

bool NeedsLessMemory(const LayoutRow& row, const LayoutRow& than) {
  return row.cell->peak_bytes > 0 &&
         row.cell->peak_bytes < kLessMemory * than.cell->peak_bytes;
}

std::string MemoryOf(const LayoutRow& row) {
  return absl::StrFormat("%.0f MB", row.cell->peak_bytes / 1e6);
}

// "ddp (1.01 [0.94, 1.08] times as long), fsdp zero3 (...)"
std::string BehindNames(absl::Span<const LayoutRow* const> rows) {
  return absl::StrJoin(rows, ", ", [](std::string* out, const LayoutRow* row) {
    absl::StrAppend(out, row->cell->Trainer(), " (", BehindText(*row),
                    " times as long)");
  });
}

// Which to use, of several that are as fast as each other.
std::string ChoiceAmong(absl::Span<const LayoutRow* const> equal) {
  const LayoutRow& least = LeastMemory(equal);
  const std::string memory =
      &least != equal[0] && NeedsLessMemory(least, *equal[0])
          ? absl::StrCat("use ", least.cell->Trainer(),
                         ", whose fullest rank holds least, ", MemoryOf(least),
                         " instead of ", MemoryOf(*equal[0]))
          : "use whichever is simplest";
  return absl::StrCat("the fastest are within noise of each other: ",
                      equal[0]->cell->Trainer(), " (", RateText(*equal[0]),
                      "), ", BehindNames(equal.subspan(1)), "; ", memory, ".");
}

// `fastest`: the fastest layout, then those not separated from it. A layout
// counts as equally fast only if IsAsFast, not merely because its runs are
// noisy.
std::string Choice(absl::Span<const LayoutRow* const> fastest) {
  size_t equal = 1;
  while (equal < fastest.size() && IsAsFast(*fastest[equal])) ++equal;
  const std::string choice =
      equal > 1 ? ChoiceAmong(fastest.subspan(0, equal))
                : absl::StrCat("use ", fastest[0]->cell->Trainer(), ": ",
                               RateText(*fastest[0]), ".");
  if (equal == fastest.size()) return choice;
  return absl::StrCat(choice, " The runs vary too much to say that ",
                      equal > 1 ? "these are" : "it is", " faster than ",
                      BehindNames(fastest.subspan(equal)),
                      "; add --repetitions.");
}

// "ddp takes 1.35 [1.30, 1.40] times as long: it spends 30 ms more ..."
std::string BehindSentence(const LayoutComparison& layouts,
                           const LayoutRow& row) {
  const LayoutRow& best = layouts.rows.front();
  std::vector<std::string> reasons;
  if (layouts.scaling == Scaling::kFixedMemory &&
      RankBatch(best) >= kLargerBatch * RankBatch(row)) {
    reasons.push_back(
        absl::StrCat("the same memory holds a batch of only ",
                     BatchText(RankBatch(row)), " per rank, and one of ",
                     BatchText(RankBatch(best)), " of ", best.cell->Trainer()));
  }
  const std::string why = WhyBehind(best, row);
  if (!why.empty()) reasons.push_back(why);
  return absl::StrCat(" ", row.cell->Trainer(), " takes ", BehindText(row),
                      " times as long", reasons.empty() ? "" : ": ",
                      absl::StrJoin(reasons, ", and "), ".");
}

// Where some layout that is not as fast as the fastest needs less memory.
std::string MemorySentence(const LayoutComparison& layouts) {
  if (layouts.scaling == Scaling::kFixedMemory) return "";
  std::vector<const LayoutRow*> all, as_fast;
  for (const LayoutRow& row : layouts.rows) {
    all.push_back(&row);
    if (IsAsFast(row)) as_fast.push_back(&row);
  }
  const LayoutRow& least = LeastMemory(all);
  if (IsAsFast(least) || !NeedsLessMemory(least, LeastMemory(as_fast))) {
    return "";
  }
  return absl::StrCat(" Where memory is short: ", least.cell->Trainer(),
                      ", whose fullest rank holds ", MemoryOf(least),
                      " instead of ", MemoryOf(*as_fast[0]), ".");
}

// Where the same rank is slow in most layouts, none of them avoids it.
std::string StragglerSentence(const Answer& answer,
                              const LayoutComparison& layouts) {
  std::map<int64_t, std::vector<double>> shares;  // by rank
  for (const CellStraggler& slow : answer.stragglers) {
    const bool compared = absl::c_any_of(
        layouts.rows,
        [&slow](const LayoutRow& row) { return row.cell == slow.cell; });
    if (compared) shares[slow.straggler.rank].push_back(slow.straggler.share);
  }
  for (const auto& [rank, of_step] : shares) {
    if (of_step.size() < 2 || 2 * of_step.size() <= layouts.rows.size()) {
      continue;
    }
    return absl::StrFormat(
        " Before the layout, look at rank %d: it is slower than the others in "
        "%d of these %d layouts, by %s of the step at the median, and no "
        "layout avoids that.",
        rank, of_step.size(), layouts.rows.size(),
        PercentText(Median(of_step)));
  }
  return "";
}

std::string HeldEqual(const LayoutComparison& layouts) {
  const LayoutRow& first = layouts.rows.front();
  switch (layouts.scaling) {
    case Scaling::kStrong:
      return absl::StrCat("with a global batch of ", first.cell->global_batch,
                          " (strong scaling)");
    case Scaling::kWeak:
      return absl::StrCat("with a batch of ", BatchText(RankBatch(first)),
                          " per rank (weak scaling)");
    case Scaling::kFixedMemory:
      break;
  }
  return "with the same memory per rank";
}

std::string Advice(const Answer& answer, const LayoutComparison& layouts) {
  const std::vector<const LayoutRow*> fastest = Fastest(layouts);
  const int64_t hosts = layouts.rows.front().cell->hosts;
  std::string text =
      absl::StrFormat("On %d ranks%s, %s, %s", layouts.world_size,
                      hosts > 1 ? absl::StrCat(" of ", hosts, " hosts") : "",
                      HeldEqual(layouts), Choice(fastest));
  size_t explained = 0;
  for (const LayoutRow& row : layouts.rows) {
    if (!row.separated || ++explained > kExplainedLayouts) continue;
    text += BehindSentence(layouts, row);
  }
  if (std::isnan(layouts.rows.back().behind.interval.low)) {
    text += " One run each gives no interval: repeat them (--repetitions).";
  }
  return absl::StrCat(text, MemorySentence(layouts),
                      StragglerSentence(answer, layouts));
}

// Sorts the rows, the fastest first, and sets `behind` and `separated`. Which
// layout is the fastest is known only from the data, so any pair may be the one
// compared: the intervals are simultaneous over all pairs (Bonferroni), with a
// separate variance for each layout.
void CompareRows(std::vector<LayoutRow>& rows) {
  absl::c_stable_sort(rows, [](const LayoutRow& a, const LayoutRow& b) {
    return a.rate > b.rate;
  });
  const auto rates = [](const LayoutRow& row) {
    return row.cell->Values(&Throughput::examples_per_second);
  };
  const double count = static_cast<double>(rows.size());
  const double pairs = count * (count - 1) / 2;
  const std::vector<double> best = rates(rows.front());
  for (LayoutRow& row : rows) {
    row.behind = RatioOf(best, rates(row), kSignificance / pairs);
    // Without an interval there is nothing but the rates to go by.
    row.separated = &row != &rows.front() && !(row.behind.interval.low <= 1);
  }
}

LayoutRow RowOf(const Answer& answer, const Cell& cell) {
  LayoutRow row;
  row.cell = &cell;
  const std::vector<double> rates =
      cell.Values(&Throughput::examples_per_second);
  row.rate = GeometricMean(rates);
  row.rate_interval = GeometricMeanInterval(rates);
  const auto ledger = absl::c_find_if(
      answer.ledgers,
      [&cell](const CellLedger& entry) { return entry.cell == &cell; });
  if (ledger != answer.ledgers.end()) row.ledger = &ledger->ledger;
  return row;
}

// Way of scaling, ranks, hosts, the global batch where it is held equal, the
// flags that all trainers have, and a rank's CPU model, kind of device and
// threads.
using WorkKey = std::tuple<Scaling, int64_t, int64_t, int64_t, std::string,
                           std::string, std::string, int64_t>;

// The names of the flags that say the same of every trainer.
std::set<std::string> SharedFlags(absl::Span<const Cell> cells) {
  std::map<std::string, size_t> counts;
  for (const Cell& cell : cells) {
    for (const auto& [name, value] : cell.run.flags) ++counts[name];
  }
  std::set<std::string> shared;
  for (const auto& [name, count] : counts) {
    if (count == cells.size() && !FollowsWorldSizeOrOutput(name)) {
      shared.insert(name);
    }
  }
  return shared;
}

void AddTo(std::map<WorkKey, std::vector<const Cell*>>& groups, Scaling scaling,
           const Cell& cell, const std::set<std::string>& shared) {
  const int64_t ranks = cell.run.world_size;
  if (ranks == 1) return;
  std::string flags;
  for (const std::string& name : shared) {
    absl::StrAppend(&flags, name, "=", FlagOf(cell.run, name), "\n");
  }
  const int64_t held = scaling == Scaling::kFixedMemory ? 0 : cell.global_batch;
  std::vector<const Cell*>& group =
      groups[{scaling, ranks, cell.hosts, held, flags, cell.run.host.cpu_model,
              DeviceKind(cell.run), cell.run.threads_per_rank}];
  if (!absl::c_linear_search(group, &cell)) group.push_back(&cell);
}

// As cells do that have the same batch per rank, and count as weak scaling.
bool HoldsMemoryOf(const Cell& base, const Cell& cell) {
  return CheckComparable(base, cell, Scaling::kFixedMemory,
                         {.allow_oversubscribed = true, .force = true})
      .ok();
}

// Of each layout the cell of the largest batch: others were run for other
// reasons.
void KeepLargestBatches(std::vector<const Cell*>& cells) {
  std::map<std::string, int64_t> largest;
  for (const Cell* cell : cells) {
    int64_t& batch = largest[cell->Trainer()];
    batch = std::max(batch, cell->global_batch);
  }
  std::erase_if(cells, [&largest](const Cell* cell) {
    return cell->global_batch < largest[cell->Trainer()];
  });
  absl::c_sort(cells);  // in their order
}

bool AnyLayout(const Answer& answer, double (*known)(const Cell&)) {
  return absl::c_any_of(answer.layouts, [&](const LayoutComparison& layouts) {
    return absl::c_any_of(layouts.rows, [&](const LayoutRow& row) {
      return !std::isnan(known(*row.cell));
    });
  });
}

// Which shares of the hardware's limits are known for any layout.
struct HardwareColumns {
  explicit HardwareColumns(const Answer& answer)
      : mfu(AnyLayout(answer, ModelFlopsUtilization)),
        memory(AnyLayout(answer, MemoryBandwidthShare)) {}
  const bool mfu, memory;
};

std::vector<std::string> Columns(const LayoutComparison& layouts,
                                 const LayoutRow& row, const RateColumn& rate,
                                 const HardwareColumns& hardware) {
  const Cell& cell = *row.cell;
  std::string interval = "-", slower = "fastest";
  if (!std::isnan(row.rate_interval.low)) {
    interval =
        absl::StrFormat("[%.0f, %.0f]", rate.Of(cell, row.rate_interval.low),
                        rate.Of(cell, row.rate_interval.high));
  }
  if (&row != &layouts.rows.front()) {
    slower = absl::StrCat(BehindText(row), row.separated ? "" : " ~");
  }
  std::vector<std::string> columns = {
      cell.Trainer(),
      std::string(ScalingName(layouts.scaling)),
      absl::StrCat(layouts.world_size),
      BatchText(RankBatch(row)),
      absl::StrFormat("%.0f", rate.Of(cell, row.rate)),
      interval,
      slower,
      cell.peak_bytes > 0 ? absl::StrFormat("%.0f", cell.peak_bytes / 1e6)
                          : "-"};
  if (hardware.mfu) columns.push_back(PercentText(ModelFlopsUtilization(cell)));
  if (hardware.memory)
    columns.push_back(PercentText(MemoryBandwidthShare(cell)));
  for (const ExposedAxis& axis : kExposedAxes) {
    columns.push_back(
        row.ledger == nullptr || row.ledger->IsCaptured()
            ? "-"
            : MillisecondsColumn(row.ledger->critical.*axis.seconds));
  }
  columns.push_back(
      row.ledger == nullptr
          ? "-"
          : MillisecondsColumn(row.ledger->critical.bubble_seconds));
  return columns;
}

}  // namespace

std::vector<LayoutComparison> CompareLayouts(const Answer& answer) {
  const std::set<std::string> shared = SharedFlags(answer.cells);
  std::map<WorkKey, std::vector<const Cell*>> groups;
  for (const ScalingSeries& series : answer.series) {
    for (const ScalingRow* row : series.rows) {
      AddTo(groups, series.scaling, *row->cell, shared);
    }
  }
  const bool fixes_memory =
      absl::c_any_of(answer.series, [](const ScalingSeries& series) {
        return series.scaling == Scaling::kFixedMemory;
      });
  for (const ScalingRow& row : answer.rows) {
    if (!fixes_memory || !row.efficiency.ok()) continue;
    if (!HoldsMemoryOf(*row.base, *row.cell)) continue;
    AddTo(groups, Scaling::kFixedMemory, *row.cell, shared);
  }
  std::vector<LayoutComparison> comparisons;
  for (auto& [key, cells] : groups) {
    KeepLargestBatches(cells);
    if (cells.size() < 2) continue;
    LayoutComparison& layouts = comparisons.emplace_back();
    layouts.scaling = std::get<0>(key);
    layouts.world_size = std::get<1>(key);
    for (const Cell* cell : cells) {
      layouts.rows.push_back(RowOf(answer, *cell));
    }
    CompareRows(layouts.rows);
    layouts.advice = Advice(answer, layouts);
  }
  return comparisons;
}

std::string LayoutTable(const Answer& answer) {
  if (answer.layouts.empty()) return "";
  const RateColumn rate(answer.cells);
  std::vector<std::string> header = {
      "layout",    "scaling",       "ranks",         "batch/rank",
      rate.name(), "95 % interval", "relative time", "MB"};
  const HardwareColumns hardware(answer);
  if (hardware.mfu) header.push_back("MFU");
  if (hardware.memory) header.push_back("memory");
  for (const ExposedAxis& axis : kExposedAxes) header.push_back(axis.axis);
  header.push_back("bubble");
  TextTable table(std::move(header), /*left_columns=*/2);
  for (const LayoutComparison& layouts : answer.layouts) {
    for (const LayoutRow& row : layouts.rows) {
      table.AddRow(Columns(layouts, row, rate, hardware));
    }
  }
  return absl::StrCat(
      "Layouts of ranks, the fastest of each size first; relative time with a "
      "95 % interval that is simultaneous over all pairs of layouts (~: not "
      "separated from the fastest, as the interval contains 1); MB of the "
      "fullest rank; exposed communication along each axis and bubble of the "
      "critical rank's step, ms:\n\n",
      table.ToString(), "\n");
}

std::string PlannerTable(const Answer& answer) {
  if (!answer.plan_score.has_value()) return "";
  return absl::StrCat(
      "Layouts of gpt as //analysis:plan predicts them from runs without "
      "communication and from comm_bench, and what its choices cost:\n\n",
      plan::PlanScoreText(*answer.plan_score), "\n");
}

Finding WhichLayoutToUse(const Answer& answer) {
  int64_t largest = 0;
  for (const LayoutComparison& layouts : answer.layouts) {
    largest = std::max(largest, layouts.world_size);
  }
  std::vector<std::string> advice;
  for (const LayoutComparison& layouts : answer.layouts) {
    if (layouts.world_size == largest) advice.push_back(layouts.advice);
  }
  return {"Which layout to use", absl::StrJoin(advice, "\n")};
}

}  // namespace rankwise

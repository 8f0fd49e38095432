#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/answer/answer.h"
#include "analysis/scaling/efficiency.h"
#include "analysis/stats/statistics.h"
#include "analysis/text/table.h"
#include "analysis/text/text_table.h"
#include "records/record.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

constexpr double kSignificance = 0.05;  // over all pairs of layouts
constexpr double kAsFast = 1.05;        // step time relative to the fastest
constexpr double kLessMemory = 0.9;     // highest ratio that is mentioned

// The part on which `row` spends the most extra time compared with `best`, for
// the same examples: "75 ms exposed communication along dp". "" if unknown.
std::string SpendsMore(const LayoutRow& best, const LayoutRow& row) {
  if (best.ledger == nullptr || row.ledger == nullptr ||
      best.ledger->IsCaptured() || row.ledger->IsCaptured()) {
    return "";
  }
  const double scale = static_cast<double>(best.cell->global_batch) /
                       static_cast<double>(row.cell->global_batch);
  const auto more = [&](const auto& figure) {
    return scale * std::invoke(figure, *row.ledger) -
           std::invoke(figure, *best.ledger);
  };
  double most = more(&Ledger::imbalance_seconds);
  absl::string_view on = "imbalance between ranks";
  for (const LedgerPart& part : kLedgerParts) {
    const bool is_compute = part.seconds == &LedgerParts::compute_seconds;
    const double seconds = more([&](const Ledger& ledger) {
      return is_compute ? ledger.MeanComputeSeconds()
                        : ledger.critical.*part.seconds;
    });
    if (seconds <= most) continue;
    most = seconds;
    on = part.name;
  }
  return most > 0 ? absl::StrCat(MillisecondsText(most), " ms ", on) : "";
}

using Rows = std::vector<const LayoutRow*>;

std::string RateText(const LayoutRow& row) {
  const ExampleUnit unit = UnitOf(row.cell->run);
  const auto rate = [&unit](double value) {
    return FixedText(unit.Rate(value), 0);
  };
  return absl::StrCat(rate(row.rate), " ", unit.RateName(),
                      IntervalClause(row.rate_interval, rate));
}

const LayoutRow& LeastMemory(const Rows& rows) {
  return **absl::c_min_element(
      rows, [](const LayoutRow* a, const LayoutRow* b) {
        return a->cell->peak_bytes < b->cell->peak_bytes;
      });
}

bool NeedsLessMemory(const LayoutRow& row, const LayoutRow& than) {
  return row.cell->peak_bytes > 0 &&
         row.cell->peak_bytes < kLessMemory * than.cell->peak_bytes;
}

// "fsdp zero3, whose fullest rank holds 100 MB instead of 200 MB"
std::string WithLessMemory(const LayoutRow& row, const LayoutRow& than) {
  return absl::StrCat(row.cell->Trainer(), ", whose fullest rank holds ",
                      MegabytesText(row.cell->peak_bytes), " instead of ",
                      MegabytesText(than.cell->peak_bytes));
}

// "fsdp"; "the 5 others" or "4 of the 5 others, the nearest of which is fsdp".
std::string Others(const Rows& rows, size_t all) {
  const std::string nearest = rows.front()->cell->Trainer();
  if (rows.size() == 1) return nearest;
  const std::string some =
      rows.size() < all ? absl::StrCat(rows.size(), " of ") : "";
  return absl::StrCat(some, "the ", all, " others, the nearest of which is ",
                      nearest);
}

// Recommends a layout; the table has the figures. A layout that is not
// separated from the fastest is called as fast only if it is also within 5 % of
// it, as its runs may merely be noisy.
std::string Advice(const LayoutComparison& layouts) {
  const LayoutRow& best = layouts.rows.front();
  Rows all, as_fast, doubtful;
  for (const LayoutRow& row : layouts.rows) {
    all.push_back(&row);
    if (row.separated) continue;
    (row.behind.value > kAsFast ? doubtful : as_fast).push_back(&row);
  }
  const int64_t hosts = best.cell->hosts;
  const LayoutRow& least = LeastMemory(as_fast);
  const bool is_smaller = NeedsLessMemory(least, best);
  const bool has_intervals =
      !std::isnan(layouts.rows.back().behind.interval.low);
  std::string text = absl::StrCat(
      "On ", layouts.world_size, " ranks",
      hosts > 1 ? absl::StrCat(" of ", hosts, " hosts") : "", ", ",
      HeldEqual(*best.cell, layouts.scaling), " (",
      ScalingTitle(layouts.scaling), "), use ",
      is_smaller ? WithLessMemory(least, best) : best.cell->Trainer(), ": ",
      RateText(is_smaller ? least : best), ".");
  if (as_fast.size() > 1) {
    absl::StrAppend(&text, " ", as_fast.size(), " of the ", all.size(),
                    " layouts are as fast as each other within noise: ",
                    best.cell->Trainer(), " is the fastest, ",
                    as_fast[1]->cell->Trainer(), " the nearest",
                    is_smaller ? "." : "; use whichever is simplest.");
  }
  if (!doubtful.empty()) {
    absl::StrAppend(&text, " The runs vary too much to say that ",
                    as_fast.size() == 1 ? "it is" : "they are", " faster than ",
                    Others(doubtful, all.size() - 1), "; add --repetitions.");
  } else if (as_fast.size() == 1 && has_intervals) {
    absl::StrAppend(&text, " It is faster than ",
                    Others(Rows(all.begin() + 1, all.end()), all.size() - 1),
                    ".");
  }
  if (!has_intervals) {
    text += " One run each gives no interval: repeat them (--repetitions).";
  }
  const LayoutRow& smallest = LeastMemory(all);
  if (layouts.scaling != Scaling::kFixedMemory &&
      !absl::c_linear_search(as_fast, &smallest) &&
      NeedsLessMemory(smallest, least)) {
    absl::StrAppend(
        &text, " Where memory is short: ", WithLessMemory(smallest, best), ".");
  }
  return text;
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
    // Without an interval, only the rates decide.
    row.separated = &row != &rows.front() && !(row.behind.interval.low <= 1);
    row.spends_more = SpendsMore(rows.front(), row);
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

// Way of scaling, ranks, hosts, global batch (0 under fixed memory), values of
// the flags that all cells have, CPU model, kind of device, threads per rank.
using WorkKey = std::tuple<Scaling, int64_t, int64_t, int64_t, std::string,
                           std::string, std::string, int64_t>;

// Returns the names of the flags that all cells have, without those that depend
// on the world size or name outputs.
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

// Also true for weak-scaling cells with the same batch per rank.
bool HoldsMemoryOf(const Cell& base, const Cell& cell) {
  return CheckComparable(base, cell, Scaling::kFixedMemory,
                         {.allow_oversubscribed = true, .force = true})
      .ok();
}

// Keeps each layout's cells with the largest batch; smaller batches were run
// for other reasons.
void KeepLargestBatches(std::vector<const Cell*>& cells) {
  std::map<std::string, int64_t> largest;
  for (const Cell* cell : cells) {
    int64_t& batch = largest[cell->Trainer()];
    batch = std::max(batch, cell->global_batch);
  }
  std::erase_if(cells, [&largest](const Cell* cell) {
    return cell->global_batch < largest[cell->Trainer()];
  });
  absl::c_sort(cells);  // by address: the order of the answer's cells
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
    layouts.advice = Advice(layouts);
  }
  return comparisons;
}

}  // namespace rankwise

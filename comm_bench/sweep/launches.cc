#include "comm_bench/sweep/launches.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "comm_bench/collectives/counted.h"
#include "comm_bench/timing/order_statistics.h"

namespace rankwise::comm_bench {
namespace {

using Records = std::vector<const CollectiveRecord*>;

// Records of one row, by launch.
using Launches = std::map<int64_t, Records>;

// Equal for records of the same row.
auto KeyOf(const CollectiveRecord& r) {
  return std::tie(r.collective, r.layer, r.ranks, r.bytes, r.count, r.dtype,
                  r.op, r.root, r.in_place, r.in_flight, r.cache, r.sync,
                  r.trips);
}

std::vector<Launches> SortIntoRows(absl::Span<const CollectiveRecord> records) {
  using Key = decltype(KeyOf(records[0]));
  std::vector<Launches> rows;
  // What a launch measures twice becomes two rows.
  std::map<std::pair<Key, int>, size_t> row_of_key_and_turn;
  std::map<std::tuple<Key, int64_t, int64_t>, int> turns;
  for (const CollectiveRecord& record : records) {
    const Key key = KeyOf(record);
    const int turn = turns[{key, record.launch, record.rank}]++;
    const auto [entry, is_new] = row_of_key_and_turn.try_emplace(
        std::pair<Key, int>(key, turn), rows.size());
    if (is_new) rows.emplace_back();
    rows[entry->second][record.launch].push_back(&record);
  }
  return rows;
}

absl::Status CheckLaunch(const Records& ranks) {
  const CollectiveRecord& first = *ranks[0];
  const std::string where =
      absl::StrCat("launch ", first.launch, " of ", first.collective, " of ",
                   first.bytes, " bytes: ");
  std::set<int64_t> seen;
  for (const CollectiveRecord* record : ranks) {
    if (!seen.insert(record->rank).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, "two records of rank ", record->rank,
                       "; are these the records of two jobs?"));
    }
    if (record->seconds.size() != first.seconds.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, "rank ", record->rank, " has ", record->seconds.size(),
          " iterations, rank ", first.rank, " has ", first.seconds.size()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRow(const Launches& launches) {
  const Records& first = launches.begin()->second;
  for (const auto& [launch, ranks] : launches) {
    if (absl::Status status = CheckLaunch(ranks); !status.ok()) return status;
    if (ranks.size() == first.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        first[0]->collective, " of ", first[0]->bytes, " bytes: launch ",
        launch, " has records of ", Counted(ranks.size(), "rank"), ", launch ",
        launches.begin()->first, " of ", first.size()));
  }
  return absl::OkStatus();
}

std::vector<double> SamplesOf(const Records& ranks) {
  std::set<int64_t> late;
  for (const CollectiveRecord* record : ranks) {
    late.insert(record->late.begin(), record->late.end());
  }
  std::vector<double> samples;
  for (size_t i = 0; i < ranks[0]->seconds.size(); ++i) {
    if (late.count(static_cast<int64_t>(i)) > 0) continue;
    double slowest = 0;
    for (const CollectiveRecord* record : ranks) {
      slowest = std::max(slowest, record->seconds[i]);
    }
    samples.push_back(slowest / ranks[0]->trips);
  }
  return samples;
}

CollectiveRecord WithoutSamples(CollectiveRecord record) {
  record.seconds.clear();
  record.start_seconds.clear();
  record.late.clear();
  return record;
}

double RelativeDeviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return mean > 0 ? std::sqrt(squares / (n - 1)) / mean : 0;
}

// Student's t with `freedom` degrees, 97.5 %. From 5 degrees on by the
// expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5), 0.1 % low at
// most.
double StudentQuantile(size_t freedom) {
  constexpr double kFew[] = {12.7062, 4.30265, 3.18245, 2.77645};
  if (freedom <= std::size(kFew)) return kFew[freedom - 1];
  constexpr double z = 1.959964;
  const double v = static_cast<double>(freedom);
  return z + (std::pow(z, 3) + z) / (4 * v) +
         (5 * std::pow(z, 5) + 16 * std::pow(z, 3) + 3 * z) / (96 * v * v) +
         (3 * std::pow(z, 7) + 19 * std::pow(z, 5) + 17 * std::pow(z, 3) -
          15 * z) /
             (384 * v * v * v);
}

void FillInTime(LaunchSpread& spread) {
  std::vector<double> logs;
  for (const double median : spread.median_seconds) {
    logs.push_back(std::log(median));
  }
  const size_t n = logs.size();
  const double mean =
      std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(n);
  spread.seconds = std::exp(mean);
  spread.low_seconds = spread.high_seconds =
      std::numeric_limits<double>::quiet_NaN();
  if (n < 2) return;
  double squares = 0;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const double reach = StudentQuantile(n - 1) *
                       std::sqrt(squares / static_cast<double>((n - 1) * n));
  spread.low_seconds = std::exp(mean - reach);
  spread.high_seconds = std::exp(mean + reach);
}

std::optional<LaunchSpread> Compare(const Launches& launches) {
  LaunchSpread result;
  std::vector<double> within;
  for (const auto& [launch, ranks] : launches) {
    std::vector<double> samples = SamplesOf(ranks);
    if (samples.empty()) continue;
    std::sort(samples.begin(), samples.end());
    const double median = QuantileOfSorted(samples, 0.5);
    const double range =
        QuantileOfSorted(samples, 0.75) - QuantileOfSorted(samples, 0.25);
    within.push_back(median > 0 ? range / median : 0);
    result.launches.push_back(launch);
    result.median_seconds.push_back(median);
  }
  if (result.launches.empty()) return std::nullopt;
  result.row = WithoutSamples(*launches.begin()->second[0]);
  const auto [low, high] = std::minmax_element(result.median_seconds.begin(),
                                               result.median_seconds.end());
  result.spread = *low > 0 ? *high / *low - 1 : 0;
  result.deviation = RelativeDeviation(result.median_seconds);
  result.within = Median(within);
  FillInTime(result);
  return result;
}

std::string TextOrNone(const std::string& text) {
  return text.empty() ? "-" : text;
}

constexpr char kHeader[] =
    "# time     of a call: geometric mean of the launches' medians\n"
    "# +-CI     its 95 % interval by the launches alone: iterations of a "
    "launch are not independent\n"
    "# between  of the launches' medians, largest / smallest - 1\n"
    "# sd       of the launches' medians, standard deviation / mean\n"
    "# within   of a launch's iterations, interquartile range / median\n"
    "#    collective      size     type   op place | launches      time    "
    "+-CI   between       sd   within | medians\n"
    "#                       B                     |                 us       "
    "%         %        %        % | us\n";

std::string FormatLine(const LaunchSpread& spread) {
  const CollectiveRecord& row = spread.row;
  const std::string interval =
      std::isnan(spread.high_seconds)
          ? "-"
          : absl::StrFormat("%.1f",
                            100 * (spread.high_seconds / spread.seconds - 1));
  std::string line = absl::StrFormat(
      " %14s %9s %8s %4s %5s | %8d %9.2f %7s %9.1f %8.1f %8.1f |",
      row.collective, row.dtype.empty() ? "-" : absl::StrCat(row.bytes),
      TextOrNone(row.dtype), TextOrNone(row.op),
      row.dtype.empty() ? "-"
      : row.in_place    ? "in"
                        : "out",
      spread.launches.size(), spread.seconds * 1e6, interval,
      100 * spread.spread, 100 * spread.deviation, 100 * spread.within);
  for (double median : spread.median_seconds) {
    absl::StrAppendFormat(&line, " %.2f", median * 1e6);
  }
  if (row.layer != "c10d") absl::StrAppend(&line, "  layer ", row.layer);
  if (!row.ranks.empty()) {
    absl::StrAppend(&line, "  ranks ", absl::StrJoin(row.ranks, ","));
  }
  return line + "\n";
}

}  // namespace

absl::StatusOr<std::vector<LaunchSpread>> CompareLaunches(
    absl::Span<const CollectiveRecord> records) {
  std::vector<LaunchSpread> rows;
  for (const Launches& launches : SortIntoRows(records)) {
    if (absl::Status status = CheckRow(launches); !status.ok()) return status;
    if (std::optional<LaunchSpread> row = Compare(launches)) {
      rows.push_back(*std::move(row));
    }
  }
  return rows;
}

std::string FormatLaunches(absl::Span<const LaunchSpread> rows) {
  if (rows.empty()) return "";
  std::string text = kHeader;
  for (const LaunchSpread& row : rows) text += FormatLine(row);
  return text;
}

}  // namespace rankwise::comm_bench

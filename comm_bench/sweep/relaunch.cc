#include "comm_bench/sweep/relaunch.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "analysis/stats/statistics.h"
#include "comm_bench/output/table.h"
#include "records/collective_rows.h"
#include "records/command_line.h"
#include "records/record_reader.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// records of equal measurements, by launch
using Launches = std::map<int64_t, CollectiveRow>;

// Repeated measurements within a launch become separate rows.
std::vector<Launches> SortIntoRows(absl::Span<const CollectiveRecord> records) {
  std::vector<const CollectiveRecord*> pointers;
  for (const CollectiveRecord& record : records) pointers.push_back(&record);
  std::vector<Launches> rows;
  std::map<std::pair<CallDescription, int>, size_t> places;  // by turn
  for (CollectiveRow& row : CollectiveRows(pointers)) {
    const CollectiveRecord& first = *row.ranks[0];
    const auto [place, is_new] =
        places.try_emplace({RowKey(first), row.turn}, rows.size());
    if (is_new) rows.emplace_back();
    rows[place->second][first.launch] = std::move(row);
  }
  return rows;
}

absl::Status CheckRow(const Launches& launches) {
  const size_t expected = launches.begin()->second.ranks.size();
  const CollectiveRecord& first = *launches.begin()->second.ranks[0];
  const std::string what =
      absl::StrCat(first.collective, " of ", first.bytes, " bytes: ");
  for (const auto& [launch, row] : launches) {
    if (row.ranks.size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, "launch ", launch, " has records of ",
                       Counted(static_cast<int64_t>(row.ranks.size()), "rank"),
                       ", launch ", launches.begin()->first, " of ", expected));
    }
    const CollectiveRecord& lowest = *row.ranks[0];
    for (const CollectiveRecord* record : row.ranks) {
      if (record->seconds.size() == lowest.seconds.size()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(what, "in launch ", launch, " rank ", record->rank,
                       " has ", record->seconds.size(), " iterations, rank ",
                       lowest.rank, " has ", lowest.seconds.size()));
    }
  }
  return absl::OkStatus();
}

std::optional<LaunchSpread> Compare(const Launches& launches) {
  LaunchSpread result;
  std::vector<double> within;
  for (const auto& [launch, row] : launches) {
    const std::vector<double> samples = SlowestSeconds(row);
    if (samples.empty()) continue;
    const double median = Median(samples);
    const double range = Quantile(samples, 0.75) - Quantile(samples, 0.25);
    within.push_back(median > 0 ? range / median : 0);
    result.launches.push_back(launch);
    result.median_seconds.push_back(median);
  }
  const std::vector<double>& medians = result.median_seconds;
  if (medians.empty()) return std::nullopt;
  result.call = *launches.begin()->second.ranks[0];
  const auto [low, high] = std::minmax_element(medians.begin(), medians.end());
  result.spread = *low > 0 ? *high / *low - 1 : 0;
  const double mean = Mean(medians);
  if (medians.size() > 1 && mean > 0)
    result.deviation = StandardDeviation(medians) / mean;
  result.within = Median(within);
  result.seconds = GeometricMean(medians);
  const Interval interval = GeometricMeanInterval(medians);
  result.low_seconds = interval.low;
  result.high_seconds = interval.high;
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
  const CallDescription& call = spread.call;
  const std::string interval =
      std::isnan(spread.high_seconds)
          ? "-"
          : absl::StrFormat("%.1f",
                            100 * (spread.high_seconds / spread.seconds - 1));
  std::string line = absl::StrFormat(
      " %14s %9s %8s %4s %5s | %8d %9.2f %7s %9.1f %8.1f %8.1f |",
      call.collective, call.dtype.empty() ? "-" : absl::StrCat(call.bytes),
      TextOrNone(call.dtype), TextOrNone(call.op),
      call.dtype.empty() ? "-"
      : call.in_place    ? "in"
                         : "out",
      spread.launches.size(), spread.seconds * 1e6, interval,
      100 * spread.spread, 100 * spread.deviation, 100 * spread.within);
  for (double median : spread.median_seconds) {
    absl::StrAppendFormat(&line, " %.2f", median * 1e6);
  }
  if (call.layer != "c10d") absl::StrAppend(&line, "  layer ", call.layer);
  return absl::StrCat(line, GroupRemark(call), "\n");
}

// Creates an empty file in the temporary folder; returns "" on failure.
std::string MakeSampleFile() {
  std::error_code ignored;
  std::string path = (std::filesystem::temp_directory_path(ignored) /
                      "comm_bench_XXXXXX.jsonl")
                         .string();
  const int fd = ::mkstemps(path.data(), 6);
  if (fd < 0) return "";
  ::close(fd);
  return path;
}

// Returns the number of records in a file; 0 if it does not exist yet.
int64_t CountRecords(const std::string& path) {
  const auto read =
      VisitRecords(path, {.tolerate_torn_lines = true},
                   [](const Record&) { return absl::OkStatus(); });
  return read.ok() ? read->records : 0;
}

// Returns the samples of the first `launches` launches, after the `earlier`
// records of other runs.
absl::StatusOr<std::vector<CollectiveRecord>> SamplesIn(const std::string& path,
                                                        int64_t earlier,
                                                        int launches) {
  std::vector<CollectiveRecord> samples;
  int64_t number = 0;
  const auto visited = VisitRecords(
      path, {.tolerate_torn_lines = true}, [&](const Record& record) {
        const auto* row = std::get_if<CollectiveRecord>(&record);
        if (number++ >= earlier && row != nullptr && row->launch < launches)
          samples.push_back(*row);
        return absl::OkStatus();
      });
  if (!visited.ok()) return visited.status();
  return samples;
}

int LaunchOnce(int number, const std::string& samples,
               const LaunchConfig& launch, int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  words.push_back(absl::StrCat("--launch=", number));
  words.push_back(absl::StrCat("--record=", samples));
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return LaunchRanks(launch, static_cast<int>(words.size()), pointers.data());
}

absl::Status PrintComparison(const std::string& path, int64_t earlier,
                             int launches) {
  ASSIGN_OR_RETURN(const auto samples, SamplesIn(path, earlier, launches));
  ASSIGN_OR_RETURN(const auto spreads, CompareLaunches(samples));
  std::printf("\n%s", FormatLaunches(spreads).c_str());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<LaunchSpread>> CompareLaunches(
    absl::Span<const CollectiveRecord> records) {
  std::vector<LaunchSpread> rows;
  for (const Launches& launches : SortIntoRows(records)) {
    RETURN_IF_ERROR(CheckRow(launches));
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

int Relaunch(const BenchConfig& config, const LaunchConfig& launch, int argc,
             char** argv) {
  const bool own = config.record_file.empty();
  const std::string path = own ? MakeSampleFile() : config.record_file;
  if (path.empty()) {
    std::fprintf(stderr,
                 "comm_bench: error: no file can be made in the temporary "
                 "folder; name one by --record\n");
    return kFailed;
  }
  const int64_t earlier = CountRecords(path);
  int code = 0;
  int ended = 0;
  while (code == 0 && ended < config.relaunch) {
    code = LaunchOnce(ended, path, launch, argc, argv);
    if (code == 0) ++ended;
  }
  // Compares the completed launches even if the others failed.
  absl::Status compared;
  if (ended >= 2) compared = PrintComparison(path, earlier, ended);
  if (own) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  if (compared.ok()) return code;
  std::fprintf(stderr, "comm_bench: error: %s\n",
               std::string(compared.message()).c_str());
  return code == 0 ? kFailed : code;
}

}  // namespace rankwise::comm_bench

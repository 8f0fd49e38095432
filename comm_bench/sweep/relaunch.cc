#include "comm_bench/sweep/relaunch.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "records/record_reader.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

using Records = std::vector<const CollectiveRecord*>;

// Records of one row, by launch.
using Launches = std::map<int64_t, Records>;

// Equal for records of the same row, whatever NCCL chose in a launch.
CallDescription KeyOf(const CollectiveRecord& record) {
  CallDescription key = record;
  key.algorithm = key.protocol = "";
  key.bus_factor = 1;
  return key;
}

std::vector<Launches> SortIntoRows(absl::Span<const CollectiveRecord> records) {
  std::vector<Launches> rows;
  // What a launch measures twice becomes two rows.
  std::map<std::pair<CallDescription, int>, size_t> row_of_key_and_turn;
  std::map<std::tuple<CallDescription, int64_t, int64_t>, int> turns;
  for (const CollectiveRecord& record : records) {
    const CallDescription key = KeyOf(record);
    const int turn = turns[{key, record.launch, record.rank}]++;
    const auto [entry, is_new] =
        row_of_key_and_turn.try_emplace({key, turn}, rows.size());
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
    RETURN_IF_ERROR(CheckLaunch(ranks));
    if (ranks.size() == first.size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        first[0]->collective, " of ", first[0]->bytes, " bytes: launch ",
        launch, " has records of ", Counted(ranks.size(), "rank"), ", launch ",
        launches.begin()->first, " of ", first.size()));
  }
  return absl::OkStatus();
}

// The times of a call of each iteration's slowest rank, ascending.
std::vector<double> SortedSamples(const Records& ranks) {
  std::vector<std::vector<double>> seconds, starts;
  std::set<int64_t> late;
  for (const CollectiveRecord* record : ranks) {
    late.insert(record->late.begin(), record->late.end());
    seconds.push_back(record->seconds);
    starts.push_back(record->start_seconds);
  }
  Series series = SeriesOfRanks(seconds, starts);
  series.late.assign(late.begin(), late.end());
  std::vector<double> samples = Combine(series, Across::kSlowest);
  for (double& sample : samples) sample /= ranks[0]->trips;
  std::sort(samples.begin(), samples.end());
  return samples;
}

struct DeviceEvents {
  double mean = 0;
  double deviation = 0;  // standard, of the sample; 0 below two values
};

DeviceEvents MomentsOf(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  DeviceEvents moments;
  moments.mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  if (values.size() < 2) return moments;
  double squares = 0;
  for (const double value : values) {
    squares += (value - moments.mean) * (value - moments.mean);
  }
  moments.deviation = std::sqrt(squares / (n - 1));
  return moments;
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
  const DeviceEvents moments = MomentsOf(logs);
  spread.seconds = std::exp(moments.mean);
  spread.low_seconds = spread.high_seconds =
      std::numeric_limits<double>::quiet_NaN();
  if (logs.size() < 2) return;
  const double reach = StudentQuantile(logs.size() - 1) * moments.deviation /
                       std::sqrt(static_cast<double>(logs.size()));
  spread.low_seconds = std::exp(moments.mean - reach);
  spread.high_seconds = std::exp(moments.mean + reach);
}

std::optional<LaunchSpread> Compare(const Launches& launches) {
  LaunchSpread result;
  std::vector<double> within;
  for (const auto& [launch, ranks] : launches) {
    const std::vector<double> samples = SortedSamples(ranks);
    if (samples.empty()) continue;
    const double median = QuantileOfSorted(samples, 0.5);
    const double range =
        QuantileOfSorted(samples, 0.75) - QuantileOfSorted(samples, 0.25);
    within.push_back(median > 0 ? range / median : 0);
    result.launches.push_back(launch);
    result.median_seconds.push_back(median);
  }
  if (result.launches.empty()) return std::nullopt;
  result.call = *launches.begin()->second[0];
  const auto [low, high] = std::minmax_element(result.median_seconds.begin(),
                                               result.median_seconds.end());
  result.spread = *low > 0 ? *high / *low - 1 : 0;
  const DeviceEvents moments = MomentsOf(result.median_seconds);
  result.deviation = moments.mean > 0 ? moments.deviation / moments.mean : 0;
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
  if (!call.ranks.empty()) {
    absl::StrAppend(&line, "  ranks ", absl::StrJoin(call.ranks, ","));
  }
  return line + "\n";
}

// The file that the launches' samples go to: the user's, or one of our own that
// ends with this object.
class SampleFile {
 public:
  explicit SampleFile(const std::string& users) : path_(users) {
    if (!path_.empty()) return;
    std::error_code ignored;
    path_ = (std::filesystem::temp_directory_path(ignored) /
             "comm_bench_XXXXXX.jsonl")
                .string();
    const int fd = ::mkstemps(path_.data(), 6);
    own_ = fd >= 0;
    if (own_) {
      ::close(fd);
    } else {
      path_.clear();
    }
  }
  ~SampleFile() {
    std::error_code ignored;
    if (own_) std::filesystem::remove(path_, ignored);
  }
  SampleFile(const SampleFile&) = delete;
  SampleFile& operator=(const SampleFile&) = delete;

  const std::string& path() const { return path_; }
  bool ok() const { return own_ || !path_.empty(); }

 private:
  std::string path_;
  bool own_ = false;
};

// The runs of a file by their ids; none where there is no such file yet.
std::set<std::string> RunsIn(const std::string& path) {
  std::set<std::string> runs;
  (void)VisitRecords(path, {.tolerate_torn_lines = true},
                     [&runs](const Record& record) {
                       if (const auto* run = std::get_if<RunRecord>(&record))
                         runs.insert(run->run_id);
                       return absl::OkStatus();
                     });
  return runs;
}

// The samples of all runs but `earlier`.
absl::StatusOr<std::vector<CollectiveRecord>> SamplesIn(
    const std::string& path, const std::set<std::string>& earlier) {
  std::vector<CollectiveRecord> samples;
  std::set<int64_t> ours;  // ranks whose latest run is not an earlier one
  const auto visited = VisitRecords(
      path, {.tolerate_torn_lines = true}, [&](const Record& record) {
        if (const auto* run = std::get_if<RunRecord>(&record)) {
          if (earlier.contains(run->run_id)) {
            ours.erase(run->rank);
          } else {
            ours.insert(run->rank);
          }
        }
        const auto* row = std::get_if<CollectiveRecord>(&record);
        if (row != nullptr && ours.contains(row->rank)) samples.push_back(*row);
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

// The launches before number `ended`.
absl::Status CompareEnded(const std::string& path,
                          const std::set<std::string>& earlier, int ended) {
  ASSIGN_OR_RETURN(auto samples, SamplesIn(path, earlier));
  std::erase_if(samples, [ended](const CollectiveRecord& row) {
    return row.launch >= ended;
  });
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
  const SampleFile file(config.record_file);
  if (!file.ok()) {
    std::fprintf(stderr,
                 "comm_bench: error: no file can be made in the temporary "
                 "folder; name one by --record\n");
    return 1;
  }
  const std::set<std::string> earlier = RunsIn(file.path());
  int code = 0;
  int ended = 0;
  while (code == 0 && ended < config.relaunch) {
    code = LaunchOnce(ended, file.path(), launch, argc, argv);
    if (code == 0) ++ended;
  }
  // What has ended is compared also when the others never will.
  if (ended < 2) return code;
  const absl::Status compared = CompareEnded(file.path(), earlier, ended);
  if (compared.ok()) return code;
  std::fprintf(stderr, "comm_bench: error: %s\n",
               std::string(compared.message()).c_str());
  return code == 0 ? 1 : code;
}

}  // namespace rankwise::comm_bench

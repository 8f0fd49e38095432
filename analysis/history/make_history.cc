#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "analysis/history/change_points.h"
#include "analysis/history/history.h"
#include "analysis/runs/cell.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

const RunRecord& FirstRecord(const RunTrace& run) { return run.ranks[0].run; }

// Returns "2026-01-31" for the run id "20260131-235959-9f3a02c1".
absl::StatusOr<std::string> DayOf(const RunTrace& run) {
  const std::string& id = FirstRecord(run).run_id;
  const absl::string_view digits = absl::string_view(id).substr(0, 8);
  if (digits.size() < 8 || !absl::c_all_of(digits, absl::ascii_isdigit)) {
    return absl::InvalidArgumentError(absl::StrCat(
        run.source, ": the run id \"", id,
        "\" does not begin with the date of the run, as in "
        "20260131-235959-9f3a02c1, so its place in the history is unknown"));
  }
  return absl::StrCat(digits.substr(0, 4), "-", digits.substr(4, 2), "-",
                      digits.substr(6, 2));
}

absl::Status CheckRunIds(absl::Span<const RunTrace> runs) {
  std::map<std::string, std::string> sources;
  for (const RunTrace& run : runs) {
    const auto [found, is_new] =
        sources.try_emplace(FirstRecord(run).run_id, run.source);
    if (is_new) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the run ", found->first, " is in both ", found->second,
                     " and ", run.source, ": name each folder once"));
  }
  return absl::OkStatus();
}

// Runs of one version belong to one commit. A run without a hash of its sources
// is identified by its commit, else by its day.
std::string VersionOf(const RunRecord& run, const std::string& day) {
  const std::string version = CodeVersion(run);
  if (version != kUnknownCode) return version;
  return run.git_commit.empty() ? day : CommitText(run);
}

// Returns the runs of each point, ordered by their ids, which begin with the
// time.
absl::StatusOr<std::vector<std::vector<RunTrace>>> RunsOfPoints(
    std::vector<RunTrace> runs, bool by_day) {
  std::erase_if(runs, [](const RunTrace& run) { return run.ranks.empty(); });
  RETURN_IF_ERROR(CheckRunIds(runs));
  absl::c_sort(runs, [](const RunTrace& a, const RunTrace& b) {
    return FirstRecord(a).run_id < FirstRecord(b).run_id;
  });
  std::vector<std::vector<RunTrace>> points;
  std::map<std::string, size_t> places;
  for (RunTrace& run : runs) {
    ASSIGN_OR_RETURN(const std::string day, DayOf(run));
    const auto [place, is_new] = places.try_emplace(
        by_day ? day : VersionOf(FirstRecord(run), day), points.size());
    if (is_new) points.emplace_back();
    points[place->second].push_back(std::move(run));
  }
  return points;
}

// The points of one configuration so far, by metric.
struct Track {
  Configuration latest;
  std::map<const Metric*, std::vector<SeriesPoint>> points;
};

SeriesPoint PointOf(size_t point, const std::vector<double>& values) {
  SeriesPoint result = {point, values.size(), kUnknown, {kUnknown, kUnknown}};
  if (!AllPositive(values)) return result;
  result.value = GeometricMean(values);
  result.interval = GeometricMeanInterval(values);
  return result;
}

// Appends a point with the configuration's samples.
void Extend(Track& track, const Configuration& measured, size_t point,
            const std::vector<std::string>& metrics) {
  for (const Metric& metric : kMetrics) {
    const auto values = measured.samples.find(std::string(metric.name));
    if (values == measured.samples.end() || values->second.empty() ||
        !absl::c_linear_search(metrics, metric.name)) {
      continue;
    }
    track.points[&metric].push_back(PointOf(point, values->second));
  }
  track.latest = measured;
}

// Adds a point's configurations to the tracks.
void AddPoint(const RecordSet& set, size_t point, const std::string& day,
              const HistoryConfig& config, std::vector<Track>& tracks,
              std::vector<std::string>& remarks) {
  std::vector<Configuration> latest;
  for (const Track& track : tracks) latest.push_back(track.latest);
  const Pairing pairing =
      PairConfigurations(latest, set.configurations, config.ignored_flags);
  for (const ConfigurationPair& pair : pairing.pairs) {
    if (pair.a->cpus != pair.b->cpus) {
      remarks.push_back(absl::StrCat(pair.b->name, ": the CPU changed from ",
                                     pair.a->cpus, " to ", pair.b->cpus, " on ",
                                     day));
    }
    Extend(tracks[pair.a - latest.data()], *pair.b, point, config.metrics);
  }
  for (const Configuration* added : pairing.only_b)
    Extend(tracks.emplace_back(), *added, point, config.metrics);
  for (const Configuration& measured : set.configurations) {
    const std::string doubt = WhyNotOneCode(measured.code_versions);
    if (!doubt.empty()) {
      remarks.push_back(
          absl::StrCat(day, ": ", measured.name, ": its repetitions ", doubt));
    }
  }
}

void FindChanges(HistorySeries& series, double alpha, size_t tested) {
  const std::vector<double> values =
      NumbersOf(series.points, &SeriesPoint::value);
  std::vector<double> logarithms;
  for (const double value : values) logarithms.push_back(std::log(value));
  const std::vector<ChangePoint> found = FindChangePoints(
      logarithms, alpha / static_cast<double>(std::max<size_t>(tested, 1)));
  size_t begin = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t at = found[i].at;
    const size_t end = i + 1 < found.size() ? found[i + 1].at : values.size();
    const absl::Span<const double> all = values;
    LevelChange change;
    change.at = at;
    change.ratio =
        RatioOf(all.subspan(at, end - at), all.subspan(begin, at - begin));
    change.before = GeometricMean(all.subspan(begin, at - begin));
    change.after = GeometricMean(all.subspan(at, end - at));
    change.p_value =
        std::min(1.0, found[i].p_value * static_cast<double>(tested));
    series.changes.push_back(change);
    begin = at;
  }
}

}  // namespace

absl::StatusOr<History> MakeHistory(std::vector<RunTrace> runs,
                                    const HistoryConfig& config) {
  ASSIGN_OR_RETURN(const auto runs_of_points,
                   RunsOfPoints(std::move(runs), config.by_day));
  History history;
  std::vector<Track> tracks;
  for (const std::vector<RunTrace>& of_point : runs_of_points) {
    ASSIGN_OR_RETURN(const std::string day, DayOf(of_point[0]));
    const RecordSet set = MeasureRecordSet(of_point, config.records);
    for (const std::string& reason : set.left_out)
      history.remarks.push_back("left out: " + reason);
    if (set.configurations.empty()) continue;
    AddPoint(set, history.points.size(), day, config, tracks, history.remarks);
    history.points.push_back(
        {day, CommitText(FirstRecord(of_point[0])), of_point.size()});
  }
  for (const Track& track : tracks) {
    for (const auto& [metric, points] : track.points) {
      const auto is_known = [](const SeriesPoint& point) {
        return !std::isnan(point.value);
      };
      if (absl::c_all_of(points, is_known)) {
        history.series.push_back({track.latest.name, metric, points, {}});
      } else if (absl::c_any_of(points, is_known)) {
        history.remarks.push_back(absl::StrCat(
            track.latest.name, ", ", metric->name, ": is 0 in some runs"));
      }
    }
  }
  if (history.series.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "these records contain no series", history.remarks.empty() ? "" : ": ",
        absl::StrJoin(history.remarks, "; ")));
  }
  const auto is_long = [](const HistorySeries& series) {
    return series.points.size() >= 2 * kLeastValuesOfLevel;
  };
  history.tested =
      static_cast<size_t>(absl::c_count_if(history.series, is_long));
  for (HistorySeries& series : history.series)
    FindChanges(series, config.alpha, history.tested);
  return history;
}

bool IsWorse(const HistorySeries& series, const LevelChange& change) {
  return (change.ratio.value < 1) == series.metric->higher_is_better();
}

}  // namespace rankwise

// The time lost to restarts.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

// Returns "2.1 s since the checkpoint of step 6, 1.9 s until training resumed".
std::string Parts(const RestartRecord& restart) {
  const std::string from =
      restart.step > 0 ? absl::StrCat("the checkpoint of step ", restart.step)
                       : "the start";
  const double since = restart.failed_unix_seconds - restart.kept_unix_seconds;
  const double until =
      restart.training_unix_seconds - restart.failed_unix_seconds;
  if (std::isnan(since)) {
    const double lost =
        restart.training_unix_seconds - restart.kept_unix_seconds;
    if (std::isnan(lost)) return absl::StrCat("from ", from);
    return absl::StrFormat("%.1f s from %s until training resumed", lost, from);
  }
  return absl::StrFormat("%.1f s since %s, %.1f s until training resumed",
                         since, from, until);
}

std::string Describe(const RestartRecord& restart) {
  return absl::StrCat(
      "restart ", restart.restart,
      restart.cause.empty() ? "" : absl::StrCat(" after ", restart.cause), ": ",
      Parts(restart));
}

// Restarts may overlap: a job that fails again before its next checkpoint
// returns to the same one. Seconds lost by several restarts count once.
double SecondsLost(std::vector<RestartRecord> restarts) {
  std::sort(restarts.begin(), restarts.end(),
            [](const RestartRecord& a, const RestartRecord& b) {
              return a.kept_unix_seconds < b.kept_unix_seconds;
            });
  double lost = 0, counted_until = 0;
  for (const RestartRecord& restart : restarts) {
    const double from = std::max(restart.kept_unix_seconds, counted_until);
    lost += std::max(0.0, restart.training_unix_seconds - from);
    counted_until = std::max(counted_until, restart.training_unix_seconds);
  }
  return lost;
}

std::string Describe(const std::string& file,
                     const std::vector<RestartRecord>& restarts) {
  std::vector<RestartRecord> known;
  for (const RestartRecord& restart : restarts) {
    if (!std::isnan(restart.kept_unix_seconds)) known.push_back(restart);
  }
  std::string text = absl::StrCat(
      file, ": restarted ",
      restarts.size() == 1 ? "once" : absl::StrCat(restarts.size(), " times"),
      ", ");
  if (known.empty()) {
    absl::StrAppend(&text, "time lost unknown");
  } else {
    absl::StrAppendFormat(&text, "%s%.1f s lost",
                          known.size() < restarts.size() ? "at least " : "",
                          SecondsLost(known));
  }
  return absl::StrCat(
      text, " (",
      absl::StrJoin(restarts, "; ",
                    [](std::string* out, const RestartRecord& restart) {
                      out->append(Describe(restart));
                    }),
      ")");
}

}  // namespace

std::vector<std::string> LostTime(absl::Span<const RunTrace> runs) {
  std::map<std::string, std::vector<RestartRecord>> by_file;
  for (const RunTrace& run : runs) {
    for (const RankTrace& rank : run.ranks) {
      if (rank.restarts.empty()) continue;
      std::vector<RestartRecord>& restarts = by_file[run.source];
      restarts.insert(restarts.end(), rank.restarts.begin(),
                      rank.restarts.end());
    }
  }
  std::vector<std::string> lines;
  for (const auto& [file, restarts] : by_file)
    lines.push_back(Describe(file, restarts));
  return lines;
}

}  // namespace rankwise

// Draws what configurations took over commits or days.

#include "analysis/history/history.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/compare/comparison.h"
#include "analysis/report/page.h"
#include "analysis/runs/run_trace.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, by, "commit",
          "what one point of a series is: the runs of a commit, or those of a "
          "day (UTC)");
ABSL_FLAG(std::string, metrics, "step_seconds,peak_bytes,call_seconds",
          "names separated by commas, those of //analysis:compare; empty: all");
ABSL_FLAG(double, alpha, 0.05,
          "how probable it may be that a change is found where there is none");
ABSL_FLAG(std::string, ignore_flags, "",
          "flags of the trainers, separated by commas, that may change within "
          "a series: bucket_cap_mb");
ABSL_FLAG(int64_t, warmup_steps, 10,
          "steps at the start of every run that are left out");
ABSL_FLAG(std::string, page, "history.html",
          "file for the figures; empty: none");
ABSL_FLAG(std::string, csv, "", "file to write the series to as CSV");
ABSL_FLAG(std::string, plotly_js, "",
          "plotly.min.js, which the page holds; empty: this build's");

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "draws what each configuration took over commits or days, and where that "
    "changed, from folders of *.jsonl or record files.\n"
    "  bazel run //analysis:history -- results/*\n"
    "docs/history.md says how changes are found.";

absl::StatusOr<HistoryConfig> ConfigFromFlags() {
  HistoryConfig config;
  const std::string by = absl::GetFlag(FLAGS_by);
  if (by != "commit" && by != "day") {
    return absl::InvalidArgumentError(
        absl::StrCat("--by=", by, ": expected commit or day"));
  }
  config.by_day = by == "day";
  config.alpha = absl::GetFlag(FLAGS_alpha);
  if (!(config.alpha >= 1e-6 && config.alpha < 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--alpha=", config.alpha, ": expected a number from 1e-6 to 1"));
  }
  ASSIGN_OR_RETURN(config.metrics, ParseMetrics(absl::GetFlag(FLAGS_metrics)));
  config.ignored_flags =
      absl::StrSplit(absl::GetFlag(FLAGS_ignore_flags), ',', absl::SkipEmpty());
  config.records.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  if (config.records.throughput.warmup_steps < 0) {
    return absl::InvalidArgumentError(
        "--warmup_steps: expected a number from 0");
  }
  return config;
}

absl::Status WritePageFor(const History& history, const HistoryConfig& config) {
  const std::string path = UserPath(absl::GetFlag(FLAGS_page));
  if (path.empty()) return absl::OkStatus();
  std::string plotly = UserPath(absl::GetFlag(FLAGS_plotly_js));
  if (plotly.empty()) {
    const char* runfiles = std::getenv("RUNFILES_DIR");  // set by Bazel
    ASSIGN_OR_RETURN(plotly, FindPlotly(OwnPath(), runfiles ? runfiles : ""));
  }
  RETURN_IF_ERROR(WriteHistoryPage(history, config, plotly, path));
  std::printf("Page: %s\n", path.c_str());
  return absl::OkStatus();
}

absl::Status Run(const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(const HistoryConfig config, ConfigFromFlags());
  std::vector<RunTrace> runs;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::vector<RunTrace> more, LoadRuns(path));
    for (RunTrace& run : more) runs.push_back(std::move(run));
  }
  ASSIGN_OR_RETURN(const History history, MakeHistory(runs, config));
  std::fputs(HistoryText(history, config).c_str(), stdout);
  const std::string csv = UserPath(absl::GetFlag(FLAGS_csv));
  if (!csv.empty()) RETURN_IF_ERROR(ReplaceFile(csv, HistoryCsv(history)));
  return WritePageFor(history, config);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/history/");
  const std::vector<char*> arguments = rankwise::ParseFlags(argc, argv);
  if (arguments.size() < 2) {
    return rankwise::Complain(
        "history", absl::InvalidArgumentError(
                       "expected folders of records, as in \"history "
                       "results/*\""));
  }
  std::vector<std::string> paths;
  for (size_t i = 1; i < arguments.size(); ++i)
    paths.push_back(rankwise::UserPath(arguments[i]));
  const absl::Status status = rankwise::Run(paths);
  return status.ok()
             ? 0
             : rankwise::Complain("history", status, rankwise::kBadUsage);
}

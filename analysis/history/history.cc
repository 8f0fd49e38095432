// Plots metrics of configurations over commits or days, and finds changes.

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
          "runs of one point of a series: those of a commit, or of a UTC day: "
          "commit, day");
ABSL_FLAG(std::string, metrics, "step_seconds,peak_bytes,call_seconds",
          "comma-separated metrics of //analysis:compare; if empty, all");
ABSL_FLAG(double, alpha, 0.05,
          "highest probability of reporting any change if there is none");
ABSL_FLAG(std::string, ignore_flags, "",
          "comma-separated trainer flags that may change within a series: "
          "bucket_cap_mb");
ABSL_FLAG(int64_t, warmup_steps, 10, "steps to skip at the start of every run");
ABSL_FLAG(std::string, page, "history.html",
          "file to write the page with the charts to; if empty, no page");
ABSL_FLAG(std::string, csv, "", "file to write the series to, as CSV");
ABSL_FLAG(
    std::string, plotly_js, "",
    "path of the plotly.min.js to embed in the page; if empty, this build's");

namespace rankwise {
namespace {

constexpr char kUsage[] =
    "plots each configuration's metrics over commits or days, from folders of "
    "*.jsonl or record files, and reports where they changed.\n"
    "  bazel run //analysis:history -- results/*\n"
    "Exit codes: 0, also if something changed; 2: wrong flags, records that "
    "cannot be read, or a file that cannot be written. docs/history.md "
    "explains how changes are found.";

absl::StatusOr<HistoryConfig> ConfigFromFlags() {
  HistoryConfig config;
  const std::string by = absl::GetFlag(FLAGS_by);
  if (by != "commit" && by != "day") {
    return absl::InvalidArgumentError(
        absl::StrCat("--by=", by, ": expected commit or day"));
  }
  config.by_day = by == "day";
  config.alpha = absl::GetFlag(FLAGS_alpha);
  RETURN_IF_ERROR(CheckAlpha(config.alpha));
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
  ASSIGN_OR_RETURN(const std::string plotly,
                   FindPlotly(UserPath(absl::GetFlag(FLAGS_plotly_js)),
                              OwnPath(), std::getenv("RUNFILES_DIR")));
  RETURN_IF_ERROR(WriteHistoryPage(history, config, plotly, path));
  std::printf("Page: %s\n", path.c_str());
  return absl::OkStatus();
}

absl::StatusOr<History> ReadHistory(const std::vector<std::string>& paths,
                                    const HistoryConfig& config) {
  std::vector<RunTrace> runs;
  for (const std::string& path : paths) {
    ASSIGN_OR_RETURN(std::vector<RunTrace> more, LoadRuns(path));
    for (RunTrace& run : more) runs.push_back(std::move(run));
  }
  return MakeHistory(std::move(runs), config);
}

absl::Status WriteHistory(const History& history, const HistoryConfig& config) {
  std::fputs(HistoryText(history, config).c_str(), stdout);
  const std::string csv = UserPath(absl::GetFlag(FLAGS_csv));
  if (!csv.empty()) RETURN_IF_ERROR(ReplaceFile(csv, HistoryCsv(history)));
  return WritePageFor(history, config);
}

// Returns the exit code.
int Run(const std::vector<std::string>& paths) {
  const absl::StatusOr<HistoryConfig> config = ConfigFromFlags();
  if (!config.ok()) return Complain("history", config.status(), kBadUsage);
  const absl::StatusOr<History> history = ReadHistory(paths, *config);
  if (!history.ok()) return Complain("history", history.status(), kBadUsage);
  const absl::Status written = WriteHistory(*history, *config);
  return written.ok() ? 0 : Complain("history", written, kFailed);
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
  return rankwise::Run(paths);
}

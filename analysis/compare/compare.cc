// Compares two sets of records; the exit code indicates whether B is worse than
// A.

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "analysis/compare/comparison.h"
#include "analysis/compare/record_set.h"
#include "analysis/text/program.h"
#include "records/command_line.h"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(double, threshold, 0.05,
          "largest relative change that counts as equivalent; a figure is "
          "worse or better if its whole 95 % interval is beyond this");
ABSL_FLAG(double, alpha, 0.05,
          "a figure is worse or better only if its p, corrected for the number "
          "of figures (Holm), is below this: at most this share of comparisons "
          "of equal code report a change");
ABSL_FLAG(std::string, metrics, "",
          "comma-separated names: step_seconds, examples_per_second, "
          "comm_wait_seconds, data_wait_seconds, peak_bytes, call_seconds; "
          "if empty, all");
ABSL_FLAG(std::string, repetitions_of_calls, "launches",
          "what counts as a repetition of a collective: launches, or "
          "iterations as if those of one launch were independent");
ABSL_FLAG(std::string, ignore_flags, "",
          "comma-separated trainer flags in which A and B may differ: "
          "bucket_cap_mb");
ABSL_FLAG(int64_t, warmup_steps, 10, "steps to skip at the start of every run");
ABSL_FLAG(bool, require_all, false,
          "exit code 3 if B lacks a configuration or a metric of A");
ABSL_FLAG(bool, force, false,
          "compare even if repetitions within A or within B ran different or "
          "unknown code");
ABSL_FLAG(std::string, csv, "", "file to write the table to, as CSV");
ABSL_FLAG(std::string, markdown, "",
          "file to write a short report to, for a CI job's summary: the result "
          "and the figures that are not equivalent");

namespace rankwise {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "compares two sets of records: record files, or folders of *.jsonl.\n"
    "  bazel run //analysis:compare -- BEFORE AFTER\n"
    "A figure is one metric of one configuration. Exit codes: 0: no figure is "
    "worse by more than the threshold; 1: at least one is; 3: inconclusive; 2: "
    "wrong flags, records that cannot be read or compared, or a file that "
    "cannot be written. docs/compare.md explains how figures are judged.";

absl::StatusOr<ChangeConfig> ConfigFromFlags() {
  ChangeConfig config;
  config.threshold = absl::GetFlag(FLAGS_threshold);
  if (!(config.threshold >= 0 && config.threshold < 100)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--threshold=", config.threshold,
                     ": expected a share from 0, below 100, such as 0.05"));
  }
  config.alpha = absl::GetFlag(FLAGS_alpha);
  RETURN_IF_ERROR(CheckAlpha(config.alpha));
  ASSIGN_OR_RETURN(config.metrics, ParseMetrics(absl::GetFlag(FLAGS_metrics)));
  config.ignored_flags =
      absl::StrSplit(absl::GetFlag(FLAGS_ignore_flags), ',', absl::SkipEmpty());
  const std::string unit = absl::GetFlag(FLAGS_repetitions_of_calls);
  if (unit != "launches" && unit != "iterations") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--repetitions_of_calls=", unit, ": expected launches or iterations"));
  }
  if (unit == "iterations") config.records.calls = CallUnit::kIteration;
  config.records.throughput.warmup_steps = absl::GetFlag(FLAGS_warmup_steps);
  if (config.records.throughput.warmup_steps < 0) {
    return absl::InvalidArgumentError(
        "--warmup_steps: expected a number from 0");
  }
  return config;
}

absl::Status CheckTwo(const std::string& a, const std::string& b) {
  std::error_code missing;
  if (a != b && !fs::equivalent(a, b, missing)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      a,
      ": is both A and B, and a set of records is not compared with itself"));
}

absl::Status WriteMarkdown(const std::string& text) {
  const std::string path = UserPath(absl::GetFlag(FLAGS_markdown));
  return path.empty() ? absl::OkStatus() : ReplaceFile(path, text);
}

// Returns the exit code.
absl::StatusOr<int> Compare(const std::string& path_a,
                            const std::string& path_b,
                            const ChangeConfig& config) {
  ASSIGN_OR_RETURN(const auto a, LoadRecordSet(path_a, config.records));
  ASSIGN_OR_RETURN(const auto b, LoadRecordSet(path_b, config.records));
  if (!absl::GetFlag(FLAGS_force)) {
    RETURN_IF_ERROR(CheckCode(a));
    RETURN_IF_ERROR(CheckCode(b));
  }
  ASSIGN_OR_RETURN(const Comparison comparison,
                   CompareRecordSets(a, b, config));
  std::fputs(ComparisonText(a, b, comparison, config).c_str(), stdout);
  const std::string csv = UserPath(absl::GetFlag(FLAGS_csv));
  if (!csv.empty()) {
    RETURN_IF_ERROR(ReplaceFile(csv, ComparisonCsv(comparison)));
  }
  const std::string missing =
      absl::GetFlag(FLAGS_require_all) ? MissingText(comparison) : "";
  std::fputs(missing.c_str(), stdout);
  RETURN_IF_ERROR(
      WriteMarkdown(ComparisonMarkdown(a, b, comparison, config, missing)));
  return GateExitCode(comparison, missing);
}

// Returns the exit code. As 1 means worse, every failure is kBadUsage.
int Run(const std::string& path_a, const std::string& path_b) {
  const absl::StatusOr<ChangeConfig> config = ConfigFromFlags();
  absl::Status usage = config.status();
  usage.Update(CheckTwo(path_a, path_b));
  if (!usage.ok()) return Complain("compare", usage, kBadUsage);
  const absl::StatusOr<int> exit_code = Compare(path_a, path_b, *config);
  if (exit_code.ok()) return *exit_code;
  absl::Status failure = exit_code.status();
  failure.Update(
      WriteMarkdown(FailureMarkdown(std::string(failure.message()))));
  return Complain("compare", failure, kBadUsage);
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  rankwise::DescribeProgram(rankwise::kUsage, "analysis/compare/");
  const std::vector<char*> arguments = rankwise::ParseFlags(argc, argv);
  if (arguments.size() != 3) {
    return rankwise::Complain(
        "compare", absl::InvalidArgumentError(absl::StrCat(
                       "expected two record files or folders, as in \"compare "
                       "BEFORE AFTER\", and got ",
                       arguments.size() - 1)));
  }
  return rankwise::Run(rankwise::UserPath(arguments[1]),
                       rankwise::UserPath(arguments[2]));
}

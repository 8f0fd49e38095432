#include "analysis/study/study_output.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "analysis/cell.h"
#include "analysis/study/run_command.h"
#include "analysis/study/study_run.h"
#include "analysis/study/trainer_path.h"
#include "analysis/text_table.h"

namespace rankwise {
namespace {

std::string BatchColumn(const PlannedRun& run) {
  if (!run.IsTraining()) return "-";
  if (run.trainer != "pipeline") return absl::StrCat(run.batch_size);
  return absl::StrCat(run.micro_batches, " x ", run.batch_size);
}

std::string CellColumn(const PlannedRun& run) {
  return absl::StrCat(run.trainer, run.schedule.empty() ? "" : " ",
                      run.schedule,
                      run.skip_communication ? " without communication" : "");
}

std::string Rounded(double seconds) {
  return absl::FormatDuration(
      absl::Ceil(absl::Seconds(seconds), absl::Seconds(1)));
}

// The cells' rows and what they add up to.
struct Listing {
  TextTable table =
      TextTable({"cell", "ranks", "batch", "runs", "s a run", "s in all"}, 1);
  double seconds = 0;
  size_t unknown = 0;             // cells without a time
  std::set<std::string> sources;  // of the others
};

void AddCell(const StudyConfig& config, const PlannedCell& cell,
             const RunTimes& times, Listing* listing) {
  const std::optional<RunTime> time = times.Of(config, cell.run);
  std::string a_run = "?", in_all = "?";
  if (time.has_value()) {
    const double seconds =
        time->seconds * static_cast<double>(cell.repetitions);
    a_run = absl::StrFormat("%.1f", time->seconds);
    in_all = absl::StrFormat("%.0f", seconds);
    listing->seconds += seconds;
    listing->sources.insert(time->source);
  } else {
    ++listing->unknown;
  }
  listing->table.AddRow(
      {CellColumn(cell.run), absl::StrCat(cell.run.world_size),
       BatchColumn(cell.run), absl::StrCat(cell.repetitions), a_run, in_all});
}

std::string TotalLine(const Listing& listing) {
  std::string line = absl::StrCat("In all about ", Rounded(listing.seconds));
  if (listing.unknown > 0) {
    absl::StrAppend(&line, " without the ", listing.unknown,
                    " cells marked ?, whose time is not known yet");
  }
  std::vector<std::string> from;
  for (const std::string& source : listing.sources) {
    from.push_back(source == "rough" ? "a rough guess for an idle EPYC core"
                                     : "the runs in " + source);
  }
  if (!from.empty()) {
    absl::StrAppend(&line, ", by ", absl::StrJoin(from, " and "));
  }
  return line + ".\n";
}

}  // namespace

std::string StudyHeading(const StudyConfig& config, const StudyPlan& plan,
                         const HostInfo& host, const std::string& output_dir) {
  const int64_t threads = ThreadsPerRank(config);
  const int64_t benchmarks =
      std::count_if(plan.runs.begin(), plan.runs.end(),
                    [](const PlannedRun& run) { return !run.IsTraining(); });
  const auto runs = static_cast<int64_t>(plan.runs.size()) - benchmarks;
  return absl::StrCat(
      "Study of ", absl::StrJoin(config.trainers, ", "), " at world sizes ",
      absl::StrJoin(config.world_sizes, ", "), ": ", runs, " runs of ",
      config.max_steps, " steps",
      benchmarks > 0 ? absl::StrCat(" and ", benchmarks, " of comm_bench") : "",
      ", ", threads, threads == 1 ? " thread" : " threads",
      " per rank at every size, on ", host.cores, " cores of ",
      host.cpu_model.empty() ? "a CPU" : host.cpu_model, ".\nRecords go to ",
      output_dir, ".\n");
}

std::string DryRunText(const StudyConfig& config, const StudyPlan& plan,
                       absl::Span<const PlannedRun> searched,
                       const RunTimes& times) {
  Listing listing;
  for (const PlannedCell& cell : plan.cells) {
    AddCell(config, cell, times, &listing);
  }
  for (const PlannedRun& run : searched) {
    ++listing.unknown;
    listing.table.AddRow({CellColumn(run), absl::StrCat(run.world_size),
                          "largest", absl::StrCat(config.repetitions), "?",
                          "?"});
  }
  std::string text = absl::StrCat(listing.table.ToString(), "\n",
                                  TotalLine(listing), NotRunText(plan));
  if (!searched.empty()) {
    absl::StrAppend(
        &text, "largest: the batch whose peak memory stays under ",
        MemoryText(config.memory_limit_bytes),
        "; short runs find it first, about three for each cell, and a "
        "whole one confirms it.\n");
  }
  return text;
}

std::string CommandsText(const StudyConfig& config, const StudyPlan& plan,
                         const StudyRunnerConfig& runner) {
  std::string text;
  for (const PlannedRun& run : plan.runs) {
    const std::string binary =
        run.IsTraining()
            ? absl::StrCat(runner.trainer_dir, "/", run.trainer)
            : CommBenchPath(runner.trainer_dir).value_or(run.trainer);
    absl::StrAppend(
        &text, ShellWord(binary), " ",
        absl::StrJoin(RunArguments(config, run,
                                   PathsOfRun(runner.output_dir, run).record),
                      " ",
                      [](std::string* out, const std::string& argument) {
                        out->append(ShellWord(argument));
                      }),
        "\n");
  }
  return text;
}

std::string NotRunText(const StudyPlan& plan) {
  std::string text;
  for (const std::string& reason : plan.not_run) {
    absl::StrAppend(&text, "Not run: ", reason, ".\n");
  }
  return text;
}

std::string DifferentCodeText(absl::Span<const RunTrace> runs) {
  std::map<std::string, int> versions;
  for (const RunTrace& run : runs) ++versions[CodeVersion(run.ranks[0].run)];
  if (versions.size() < 2) return "";
  return absl::StrCat(
      "Different code: runs are of ",
      absl::StrJoin(versions, ", ",
                    [](std::string* out, const auto& entry) {
                      absl::StrAppend(out, entry.first, " (", entry.second,
                                      entry.second == 1 ? " run)" : " runs)");
                    }),
      "; runs of different code are compared by --force only.\n");
}

std::string ShellWord(const std::string& text) {
  const bool plain =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isalnum(c) || absl::StrContains("_-./=:,+@%", c);
      });
  if (plain) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace rankwise

#include "analysis/study/study_output.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "analysis/runs/cell.h"
#include "analysis/stats/statistics.h"
#include "analysis/study/study_run.h"
#include "analysis/text/text_table.h"
#include "records/text.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

// Properties that determine the duration of a run, in addition to its name and
// the trainers' flags.
constexpr const char* kDecisiveOrigin[] = {"cpu_model", "cores",
                                           "threads_per_rank"};

// Rough processor time of single on one core, per example.
constexpr std::pair<absl::string_view, double> kSecondsPerExample[] = {
    {"simple_cnn", 0.6e-3}, {"mlp", 0.15e-3},   {"vit", 5e-3},   {"gpt", 11e-3},
    {"llama", 11e-3},       {"mp_mlp", 0.4e-3}, {"linear", 1e-6}};
// Flags that change the size of the named model.
constexpr absl::string_view kSizes[] = {
    "--model_size=", "--depth=",      "--width=",
    "--ffn_width=",  "--vocabulary=", "--sequence_length="};
constexpr char kRough[] = "a rough guess for an idle EPYC core";
constexpr double kEfficiency = 0.6;
// At most 36 rows of --max_seconds=0.1, each with an equally long warm-up.
constexpr double kCommBenchSeconds = 9;

bool HasItsOwnSize(const StudyConfig& config) {
  return absl::c_any_of(config.trainer_flags, [](absl::string_view flag) {
    return absl::c_any_of(kSizes, [flag](absl::string_view size) {
      return absl::StartsWith(flag, size);
    });
  });
}

bool IsAlike(const StudyDescription& a, const StudyDescription& b) {
  const auto same = [](const auto& of_a, const auto& of_b,
                       absl::Span<const char* const> names) {
    return absl::c_all_of(names, [&](const char* name) {
      const auto in_a = of_a.find(name), in_b = of_b.find(name);
      return in_a != of_a.end() && in_b != of_b.end() &&
             in_a->second == in_b->second;
    });
  };
  return same(a.flags, b.flags, kHandedOnFlags) &&
         same(a.flags, b.flags, {"trainer_flags"}) &&
         same(a.origin, b.origin, kDecisiveOrigin);
}

double StartUpSeconds(const PlannedRun& run) {
  return 0.5 + 0.3 * static_cast<double>(run.world_size);
}

// Estimates one run after its start-up from `seconds_per_example` on one core.
double GuessedSeconds(const StudyConfig& config, const PlannedRun& run,
                      double seconds_per_example) {
  const int64_t ranks = run.trainer == "model_parallel" ? 1 : run.world_size;
  const int64_t workers = std::min(ranks * ThreadsPerRank(config),
                                   std::max<int64_t>(1, config.cores));
  const double speedup =
      workers == 1 ? 1 : kEfficiency * static_cast<double>(workers);
  return static_cast<double>(config.max_steps * run.GlobalBatch()) *
         seconds_per_example / speedup;
}

std::optional<RunTime> RoughTime(const StudyConfig& config,
                                 const PlannedRun& run) {
  if (!run.IsTraining()) return RunTime{kCommBenchSeconds, kRough};
  const auto known = absl::c_find_if(
      kSecondsPerExample,
      [&config](const auto& model) { return model.first == config.model; });
  if (known == std::end(kSecondsPerExample) || HasItsOwnSize(config)) {
    return std::nullopt;
  }
  return RunTime{
      StartUpSeconds(run) + GuessedSeconds(config, run, known->second), kRough};
}

std::string BatchColumn(const PlannedRun& run) {
  if (!run.IsTraining()) return "-";
  if (!run.HasMicroBatches()) return absl::StrCat(run.batch_size);
  return absl::StrCat(run.micro_batches, " x ", run.batch_size);
}

std::vector<std::string> RowOf(const PlannedRun& run, std::string batch,
                               int64_t repetitions,
                               const std::optional<RunTime>& time) {
  std::string a_run = "?", in_all = "?";
  if (time.has_value()) {
    a_run = absl::StrFormat("%.1f", time->seconds);
    in_all = absl::StrFormat("%.0f",
                             time->seconds * static_cast<double>(repetitions));
  }
  return {absl::StrCat(run.TrainerName(),
                       run.skip_communication ? " without communication" : ""),
          absl::StrCat(run.world_size),
          std::move(batch),
          absl::StrCat(repetitions),
          a_run,
          in_all};
}

}  // namespace

RunTimes::RunTimes(const std::string& results_dir, const std::string& own_dir,
                   const StudyDescription& study) {
  Read(own_dir, study);
  std::vector<std::string> dirs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(results_dir, error)) {
    dirs.push_back(entry.path().string());
  }
  std::sort(dirs.rbegin(), dirs.rend());  // names are times
  for (const std::string& dir : dirs) Read(dir, study);
}

void RunTimes::Read(const std::string& dir, const StudyDescription& study) {
  const absl::StatusOr<StudyDescription> earlier =
      ReadFlagfile(StudyFilePath(dir));
  if (!earlier.ok() || !IsAlike(*earlier, study)) return;
  double steps = 0;
  const auto max_steps = earlier->flags.find("max_steps");
  if (max_steps == earlier->flags.end() ||
      !absl::SimpleAtod(max_steps->second, &steps) || steps < 1) {
    return;
  }
  std::map<std::string, std::vector<double>> seconds;  // by cell
  for (const auto& [run, took] : ReadDurations(dir)) {
    seconds[run.substr(0, run.rfind("-rep"))].push_back(took);
  }
  for (const auto& [cell, took] : seconds) {
    by_cell_.insert({cell, {{Median(took), "the runs in " + dir}, steps}});
  }
}

std::optional<RunTime> RunTimes::Of(const StudyConfig& config,
                                    const PlannedRun& run) const {
  const auto own = own_.find(run.CellStem());
  if (own != own_.end()) return RunTime{Median(own->second), "its own runs"};
  const auto earlier = by_cell_.find(run.CellStem());
  if (earlier == by_cell_.end()) {
    const std::vector<double>& others = run.IsTraining() ? trained_ : others_;
    if (others.empty()) return RoughTime(config, run);
    return RunTime{Median(others), "the runs so far"};
  }
  auto [time, steps] = earlier->second;
  if (!run.IsTraining()) return time;
  const double start_up = std::min(time.seconds, StartUpSeconds(run));
  time.seconds = start_up + (time.seconds - start_up) *
                                static_cast<double>(config.max_steps) / steps;
  return time;
}

void RunTimes::Add(const PlannedRun& run, double seconds) {
  own_[run.CellStem()].push_back(seconds);
  if (seconds > 0) (run.IsTraining() ? trained_ : others_).push_back(seconds);
}

absl::Duration RunTimes::Sum(const StudyConfig& config,
                             absl::Span<const PlannedRun> runs) const {
  double seconds = 0, known = 0;
  for (const PlannedRun& run : runs) {
    const std::optional<RunTime> time = Of(config, run);
    if (!time.has_value()) continue;
    seconds += time->seconds;
    ++known;
  }
  if (known == 0) return absl::ZeroDuration();
  return absl::Seconds(seconds * static_cast<double>(runs.size()) / known);
}

std::string StudyHeading(const StudyConfig& config, const StudyPlan& plan) {
  const int64_t threads = ThreadsPerRank(config);
  const int64_t benchmarks = absl::c_count_if(
      plan.runs, [](const PlannedRun& run) { return !run.IsTraining(); });
  const auto runs = static_cast<int64_t>(plan.runs.size()) - benchmarks;
  return absl::StrCat(
      "Study of ", absl::StrJoin(config.trainers, ", "), " at world sizes ",
      absl::StrJoin(config.world_sizes, ", "), ": ", runs, " runs of ",
      config.max_steps, " steps",
      benchmarks > 0 ? absl::StrCat(" and ", benchmarks, " of comm_bench") : "",
      ", ", Counted(threads, "thread"), " per rank at every size, on ",
      Counted(config.cores, "core"), " of ",
      config.cpu_model.empty() ? "a CPU" : config.cpu_model,
      ".\nRecords go to ", config.output_dir, ".\n");
}

std::string DryRunText(const StudyConfig& config, const StudyPlan& plan,
                       const RunTimes& times) {
  TextTable table({"cell", "ranks", "batch", "runs", "s a run", "s in all"}, 1);
  double seconds = 0;
  int64_t unknown = plan.searched.size();  // cells without an estimate
  std::set<std::string> sources;           // of the other estimates
  for (const auto& [run, repetitions] : plan.cells) {
    const std::optional<RunTime> time = times.Of(config, run);
    table.AddRow(RowOf(run, BatchColumn(run), repetitions, time));
    if (time.has_value()) {
      seconds += time->seconds * static_cast<double>(repetitions);
      sources.insert(time->source);
    } else {
      ++unknown;
    }
  }
  for (const PlannedRun& run : plan.searched) {
    table.AddRow(RowOf(run, "largest", config.repetitions, std::nullopt));
  }
  std::string text =
      absl::StrCat(table.ToString(), "\nIn all about ",
                   absl::FormatDuration(
                       absl::Ceil(absl::Seconds(seconds), absl::Seconds(1))));
  if (unknown > 0) {
    absl::StrAppend(&text, " without the ", Counted(unknown, "cell"),
                    " marked ?, whose time is not known yet");
  }
  if (!sources.empty()) {
    absl::StrAppend(&text, ", by ", absl::StrJoin(sources, " and "));
  }
  absl::StrAppend(&text, ".\n", NotRunText(plan));
  if (!plan.searched.empty()) {
    absl::StrAppend(
        &text, "largest: the batch whose peak memory stays under ",
        MemoryText(config.memory_limit_bytes),
        "; short runs find it first, about three for each cell, and a "
        "whole one confirms it.\n");
  }
  return text;
}

std::string CommandsText(const StudyConfig& config, const StudyPlan& plan) {
  std::string text;
  for (const PlannedRun& run : plan.runs) {
    std::vector<std::string> words = RunCommandLine(
        config, run,
        ProgramPath(config.trainer_dir, run.trainer).value_or(run.trainer),
        PathsOfRun(config.output_dir, run).record);
    for (std::string& word : words) word = ShellWord(word);
    absl::StrAppend(&text, absl::StrJoin(words, " "), "\n");
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
                      absl::StrAppend(out, entry.first, " (",
                                      Counted(entry.second, "run"), ")");
                    }),
      "; runs of different code are compared by --force only.\n");
}

std::string ShellWord(const std::string& text) {
  const bool plain = !text.empty() && absl::c_all_of(text, [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("_-./=:,+@%", c);
  });
  if (plain) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

}  // namespace rankwise

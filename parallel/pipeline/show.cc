// Simulates a pipeline schedule and prints its timeline and costs:
//
//   bazel run //parallel/pipeline:show -- --schedule=1f1b --pp=4
//       --microbatches=8 --costs=1,1,1 --trace=out.json
//
// Needs no devices; see docs/pipeline.md.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"
#include "parallel/pipeline/simulation/trace.h"
#include "records/command_line.h"
#include "third_party/absl/status_macros.h"

ABSL_FLAG(std::string, schedule, "1f1b",
          absl::StrCat(
              absl::StrJoin(rankwise::ScheduleNames(), ", "),
              " (or zero_bubble_auto:6, which stores at most 6 micro-batches "
              "per rank; default: --pp), or a CSV file in the format of "
              "torch.distributed.pipelining"));
ABSL_FLAG(int, pp, 0, "ranks of the pipeline; if 0, as in the file, else 4");
ABSL_FLAG(int, microbatches, 0,
          "micro-batches per step; if 0, as in the file, else 8");
ABSL_FLAG(int, chunks, 0,
          "stages per rank, for interleaved_1f1b; if 0, the schedule's own");
ABSL_FLAG(std::string, costs, "1,1,1",
          "F,I,W: seconds per micro-batch and stage of the forward, the input "
          "gradient and the weight gradient; a whole backward takes I + W. "
          "F,I,W/F,I,W/... sets the costs of each stage");
ABSL_FLAG(std::string, link, "0,0",
          "alpha,beta: a message takes alpha seconds + beta seconds per byte");
ABSL_FLAG(double, bytes, 0, "bytes of a message between two stages");
ABSL_FLAG(double, overlap, 0,
          "share of the shorter action of an overlapping F and B (dualpipev) "
          "that takes no extra time: 0 one after the other, 1 both at once");
ABSL_FLAG(std::string, trace, "",
          "file to write for ui.perfetto.dev or chrome://tracing");
ABSL_FLAG(std::string, csv, "", "file to write the schedule to, as CSV");
ABSL_FLAG(int, width, 0,
          "columns of the drawing; if 0, the terminal's, or 120 without one");

namespace rankwise {
namespace {

struct Config {
  Schedule schedule;
  ScheduleFacts facts;
  SimulationCosts costs;
  std::string trace, csv;
  int width = 0;
};

// Larger tables are not printed.
constexpr int kMostRanksInTable = 64;

int ChunksOf(const Schedule& schedule) {
  return std::max(1, schedule.num_stages() / schedule.num_ranks());
}

std::string Percent(double share) {
  return absl::StrFormat("%.1f %%", 100 * share);
}

std::string Percent(const std::optional<double>& share) {
  return share ? Percent(*share) : "-";
}

std::string Seconds(double seconds) {
  return absl::StrFormat("%.6g s", seconds);
}

std::string MicroBatches(double count) {
  return absl::StrFormat("%.4g", count);
}

std::string Title(const Schedule& schedule, const SimulationCosts& costs) {
  std::string title = absl::StrFormat(
      "%s: %d ranks, %d stages, %d micro-batches\n", schedule.name,
      schedule.num_ranks(), schedule.num_stages(), schedule.num_micro_batches);
  for (size_t i = 0; i < costs.stages.size(); ++i) {
    const StageCosts& stage = costs.stages[i];
    absl::StrAppendFormat(
        &title, "%s: F %g s, B %g s = I %g s + W %g s; a message: %g s\n",
        costs.stages.size() == 1 ? "each stage" : absl::StrCat("stage ", i),
        stage.forward_seconds, stage.backward_seconds, stage.input_grad_seconds,
        stage.weight_grad_seconds,
        costs.link.alpha_seconds +
            stage.output_bytes * costs.link.beta_seconds_per_byte);
  }
  return title + "\n";
}

// Returns the simulated figures next to the formulas.
std::string Figures(const Schedule& schedule, const SimulationCosts& costs,
                    const Bubbles& bubbles, const ScheduleFacts& facts) {
  const ScheduleShape shape = {schedule.num_ranks(), schedule.num_micro_batches,
                               ChunksOf(schedule)};
  ScheduleFormulas formulas;
  if (costs.stages.size() == 1)
    formulas = FormulasOf(schedule.name, shape, costs.stages[0], costs.overlap);
  const double peak = 1.0 * shape.num_ranks / schedule.num_stages() *
                      *std::max_element(facts.peak_activations.begin(),
                                        facts.peak_activations.end());
  const auto row = [](absl::string_view what, absl::string_view simulated,
                      absl::string_view formula, absl::string_view text) {
    return absl::StrFormat("%-38s%10s%10s%s%s\n", what, simulated, formula,
                           text.empty() ? "" : "  ", text);
  };
  return absl::StrCat(
      row("", "simulated", "formula", "(messages take no time)"),
      row("time, first start to last end", Seconds(bubbles.wall_seconds), "",
          ""),
      row("bubble, wall clock", Percent(bubbles.wall),
          Percent(formulas.wall_bubble), formulas.wall_text),
      row("bubble, within each rank's own span", Percent(bubbles.span),
          Percent(formulas.span_bubble), ""),
      formulas.paper_idle_seconds
          ? row("idle by the wall clock, rank with most",
                Seconds(bubbles.wall_seconds *
                        *std::max_element(bubbles.wall_per_rank.begin(),
                                          bubbles.wall_per_rank.end())),
                Seconds(*formulas.paper_idle_seconds), formulas.paper_idle_text)
          : "",
      row("peak activations, in micro-batches", MicroBatches(peak),
          formulas.peak_activations ? MicroBatches(*formulas.peak_activations)
                                    : "-",
          "on the rank with most"));
}

std::string RankTable(const Schedule& schedule, const Bubbles& bubbles,
                      const ScheduleFacts& facts) {
  if (schedule.num_ranks() > kMostRanksInTable) return "";
  std::string table = absl::StrFormat("\n%-6s%10s%14s%14s%18s  %s\n", "rank",
                                      "busy s", "bubble, wall", "bubble, span",
                                      "peak activations", "stages");
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    const std::vector<int> own = schedule.StagesOf(rank);
    absl::StrAppendFormat(&table, "%-6d%10.6g%14s%14s%18s  %s\n", rank,
                          bubbles.busy_seconds[rank],
                          Percent(bubbles.wall_per_rank[rank]),
                          Percent(bubbles.span_per_rank[rank]),
                          MicroBatches(1.0 * facts.peak_activations[rank] /
                                       static_cast<double>(own.size())),
                          absl::StrJoin(own, " "));
  }
  return table;
}

// Returns the report; the drawing is at most config.width columns wide.
std::string Report(const Config& config, const Timeline& timeline) {
  const Bubbles bubbles = MeasureBubbles(timeline);
  std::string drawing = DrawTimeline(timeline, config.width);
  if (drawing.empty())
    drawing = absl::StrCat("(too large to be drawn in ", config.width,
                           " columns; use --trace=FILE.json)\n");
  return absl::StrCat(
      Title(config.schedule, config.costs), drawing, "\n",
      Figures(config.schedule, config.costs, bubbles, config.facts),
      RankTable(config.schedule, bubbles, config.facts));
}

absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view flag,
                                                 const std::string& text,
                                                 absl::string_view names) {
  const size_t count = std::count(names.begin(), names.end(), ',') + 1;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  std::vector<double> numbers(parts.size());
  bool good = parts.size() == count;
  for (size_t i = 0; i < parts.size(); ++i) {
    good = good && absl::SimpleAtod(parts[i], &numbers[i]) &&
           std::isfinite(numbers[i]) && numbers[i] >= 0;
  }
  if (good) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", text, ": must be ", names, ": ", count,
                   " finite numbers that are not negative"));
}

absl::StatusOr<SimulationCosts> CostsFromFlags() {
  const std::string text = absl::GetFlag(FLAGS_costs);
  ASSIGN_OR_RETURN(
      const auto link,
      ParseNumbers("link", absl::GetFlag(FLAGS_link), "alpha,beta"));
  const double bytes = absl::GetFlag(FLAGS_bytes);
  if (!std::isfinite(bytes) || bytes < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--bytes=", bytes, ": must not be negative"));
  if (link[1] > 0 && bytes == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--link=", absl::GetFlag(FLAGS_link),
                     ": beta is per byte; give a message's size by --bytes"));
  SimulationCosts costs = {
      .stages = {},
      .link = {.alpha_seconds = link[0], .beta_seconds_per_byte = link[1]}};
  double sum = 0;
  for (const absl::string_view stage : absl::StrSplit(text, '/')) {
    ASSIGN_OR_RETURN(const auto numbers,
                     ParseNumbers("costs", std::string(stage), "F,I,W"));
    costs.stages.push_back({.forward_seconds = numbers[0],
                            .input_grad_seconds = numbers[1],
                            .weight_grad_seconds = numbers[2],
                            .backward_seconds = numbers[1] + numbers[2],
                            .output_bytes = bytes});
    sum += numbers[0] + numbers[1] + numbers[2];
  }
  if (sum <= 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--costs=", text, ": one must be above 0"));
  costs.overlap = absl::GetFlag(FLAGS_overlap);
  if (!(costs.overlap >= 0 && costs.overlap <= 1))
    return absl::InvalidArgumentError(
        absl::StrCat("--overlap=", costs.overlap, ": must be from 0 to 1"));
  return costs;
}

// Zeros are left for a file, which has its own shape.
ScheduleShape ShapeFromFlags(const std::string& schedule) {
  ScheduleShape shape = {absl::GetFlag(FLAGS_pp),
                         absl::GetFlag(FLAGS_microbatches),
                         absl::GetFlag(FLAGS_chunks)};
  if (!IsScheduleName(schedule)) return shape;
  if (shape.num_ranks == 0) shape.num_ranks = 4;
  if (shape.num_micro_batches == 0) shape.num_micro_batches = 8;
  return shape;
}

int TerminalWidth() {
  constexpr int kWithoutTerminal = 120;
  winsize size = {};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kWithoutTerminal;
  return size.ws_col;
}

absl::StatusOr<Config> ConfigFromFlags() {
  Config config;
  std::string name = absl::GetFlag(FLAGS_schedule);
  if (!IsScheduleName(name)) name = UserPath(name);
  config.trace = UserPath(absl::GetFlag(FLAGS_trace));
  config.csv = UserPath(absl::GetFlag(FLAGS_csv));
  config.width = absl::GetFlag(FLAGS_width);
  if (config.width < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--width=", config.width, ": must not be negative"));
  if (config.width == 0) config.width = TerminalWidth();
  ASSIGN_OR_RETURN(config.costs, CostsFromFlags());
  ASSIGN_OR_RETURN(config.schedule,
                   OpenSchedule(name, ShapeFromFlags(name), config.costs));
  ASSIGN_OR_RETURN(config.facts, Validate(config.schedule));
  const absl::Status costs =
      CheckCosts(config.costs, config.schedule.num_stages());
  if (costs.ok()) return config;
  return absl::InvalidArgumentError(absl::StrCat(
      "--costs=", absl::GetFlag(FLAGS_costs), ": ", costs.message()));
}

absl::Status Run(const Config& config) {
  ASSIGN_OR_RETURN(const Timeline timeline,
                   Simulate(config.schedule, config.costs));
  std::cout << Report(config, timeline);
  if (!config.csv.empty()) {
    RETURN_IF_ERROR(WriteScheduleCsv(config.schedule, config.csv));
    std::cout << "\nschedule: " << config.csv << "\n";
  }
  if (!config.trace.empty()) {
    RETURN_IF_ERROR(WriteTrace(config.trace, {{"simulated", &timeline}}));
    std::cout << "\ntrace, for ui.perfetto.dev: " << config.trace << "\n";
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "simulates a pipeline schedule and prints its timeline, bubbles and "
      "activations, next to the formulas\n"
      "  --schedule=1f1b --pp=4 --microbatches=8 [--chunks=2 --costs=F,I,W "
      "--link=alpha,beta --bytes=N --trace=out.json --csv=out.csv]");
  const std::vector<char*> rest = rankwise::ParseFlags(argc, argv);
  absl::StatusOr<rankwise::Config> config = rankwise::ConfigFromFlags();
  if (rest.size() > 1)
    config = absl::InvalidArgumentError(absl::StrCat(
        "unexpected argument \"", rest[1], "\"; flags look like --pp=4"));
  const absl::Status status =
      config.ok() ? rankwise::Run(*config) : config.status();
  if (status.ok()) return 0;
  std::cerr << "show: " << status.message() << "\n";
  return config.ok() ? rankwise::kFailed : rankwise::kBadUsage;
}

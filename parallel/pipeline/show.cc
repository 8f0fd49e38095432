// Prints what a pipeline schedule does, simulated:
//
//   bazel run //parallel/pipeline:show -- --schedule=1f1b --pp=4
//       --microbatches=8 --costs=1,1,1 --trace=out.json
//
// Needs no devices; see docs/pipeline.md.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/schedule_csv.h"
#include "parallel/pipeline/show_report.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/trace.h"
#include "parallel/pipeline/validate.h"
#include "records/parse_flags.h"
#include "records/user_path.h"

ABSL_FLAG(std::string, schedule, "1f1b",
          "naive, gpipe, 1f1b, interleaved_1f1b, zero_bubble_h1, zbv, or a CSV "
          "file as torch.distributed.pipelining writes it");
ABSL_FLAG(int, pp, 0, "ranks of the pipeline; 0: as the file has, else 4");
ABSL_FLAG(int, microbatches, 0,
          "micro-batches per step; 0: as many as the file has, else 8");
ABSL_FLAG(int, chunks, 0,
          "stages per rank, for interleaved_1f1b; 0: the schedule's own");
ABSL_FLAG(std::string, costs, "1,1,1",
          "F,I,W: seconds that one micro-batch takes in one stage, for the "
          "forward, the input's and the weights' gradient; a whole backward "
          "takes I + W");
ABSL_FLAG(std::string, link, "0,0",
          "alpha,beta: a message takes alpha seconds + beta seconds per byte");
ABSL_FLAG(double, bytes, 0, "bytes of a message between two stages");
ABSL_FLAG(std::string, trace, "",
          "file to write for ui.perfetto.dev or chrome://tracing");
ABSL_FLAG(std::string, csv, "", "file to write the schedule to, as CSV");
ABSL_FLAG(int, width, 0,
          "columns of the drawing; 0: the terminal's, or 120 where there is "
          "none");

namespace rankwise {
namespace {

struct Config {
  Schedule schedule;
  ScheduleFacts facts;
  SimulationCosts costs;
  std::string trace, csv;
  int width = 0;
};

absl::StatusOr<std::vector<double>> ParseNumbers(absl::string_view flag,
                                                 const std::string& text,
                                                 absl::string_view names) {
  const size_t count = std::count(names.begin(), names.end(), ',') + 1;
  std::vector<double> numbers;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    double number = 0;
    if (!absl::SimpleAtod(part, &number) || !std::isfinite(number) ||
        number < 0)
      break;
    numbers.push_back(number);
  }
  const size_t parts = std::count(text.begin(), text.end(), ',') + 1;
  if (numbers.size() == count && parts == count) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", text, ": must be ", names, ": ", count,
                   " finite numbers that are not negative"));
}

absl::StatusOr<SimulationCosts> CostsFromFlags() {
  const std::string text = absl::GetFlag(FLAGS_costs);
  const auto costs = ParseNumbers("costs", text, "F,I,W");
  if (!costs.ok()) return costs.status();
  const auto link =
      ParseNumbers("link", absl::GetFlag(FLAGS_link), "alpha,beta");
  if (!link.ok()) return link.status();
  const double bytes = absl::GetFlag(FLAGS_bytes);
  if (!std::isfinite(bytes) || bytes < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--bytes=", bytes, ": must not be negative"));
  if ((*link)[1] > 0 && bytes == 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--link=", absl::GetFlag(FLAGS_link),
                     ": beta is per byte; give a message's size by --bytes"));
  if ((*costs)[0] + (*costs)[1] + (*costs)[2] <= 0)
    return absl::InvalidArgumentError(
        absl::StrCat("--costs=", text, ": one must be above 0"));
  StageCosts stage;
  stage.forward_seconds = (*costs)[0];
  stage.input_grad_seconds = (*costs)[1];
  stage.weight_grad_seconds = (*costs)[2];
  stage.backward_seconds = (*costs)[1] + (*costs)[2];
  stage.output_bytes = bytes;
  return SimulationCosts{.stages = {stage},
                         .link = {.alpha_seconds = (*link)[0],
                                  .beta_seconds_per_byte = (*link)[1]}};
}

absl::StatusOr<ScheduleShape> ShapeFromFlags(const std::string& schedule) {
  ScheduleShape shape;
  shape.num_ranks = absl::GetFlag(FLAGS_pp);
  shape.num_micro_batches = absl::GetFlag(FLAGS_microbatches);
  shape.chunks = absl::GetFlag(FLAGS_chunks);
  ScheduleShape silent = {.num_ranks = 4, .num_micro_batches = 8};
  std::error_code ignored;
  if (!IsScheduleName(schedule) && std::filesystem::exists(schedule, ignored)) {
    const absl::StatusOr<Schedule> file = ReadScheduleCsv(schedule);
    if (!file.ok()) return file.status();
    silent.num_ranks = file->num_ranks();
    silent.num_micro_batches = file->num_micro_batches;
  }
  if (shape.num_ranks == 0) shape.num_ranks = silent.num_ranks;
  if (shape.num_micro_batches == 0)
    shape.num_micro_batches = silent.num_micro_batches;
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
  const absl::StatusOr<SimulationCosts> costs = CostsFromFlags();
  if (!costs.ok()) return costs.status();
  config.costs = *costs;
  const absl::StatusOr<ScheduleShape> shape = ShapeFromFlags(name);
  if (!shape.ok()) return shape.status();
  absl::StatusOr<Schedule> schedule = OpenSchedule(name, *shape);
  if (!schedule.ok()) return schedule.status();
  config.schedule = *std::move(schedule);
  const absl::StatusOr<ScheduleFacts> facts = Validate(config.schedule);
  if (!facts.ok()) return facts.status();
  config.facts = *facts;
  return config;
}

absl::Status WriteFiles(const Config& config, const Timeline& timeline) {
  if (!config.csv.empty()) {
    const absl::Status written = WriteScheduleCsv(config.schedule, config.csv);
    if (!written.ok()) return written;
    std::cout << "\nschedule: " << config.csv << "\n";
  }
  if (!config.trace.empty()) {
    const absl::Status written =
        WriteTrace(config.trace, {{"simulated", &timeline}});
    if (!written.ok()) return written;
    std::cout << "\ntrace, for ui.perfetto.dev: " << config.trace << "\n";
  }
  return absl::OkStatus();
}

absl::Status Run(const Config& config) {
  const absl::StatusOr<Timeline> timeline =
      Simulate(config.schedule, config.costs);
  if (!timeline.ok()) return timeline.status();
  std::cout << ShowReport(config.schedule, config.costs, *timeline,
                          config.facts, config.width);
  if (absl::Status status = WriteFiles(config, *timeline); !status.ok())
    return status;
  std::cout.flush();
  return std::cout
             ? absl::OkStatus()
             : absl::UnavailableError("writing to standard output failed");
}

}  // namespace
}  // namespace rankwise

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "prints what a pipeline schedule does, simulated: its timeline, bubbles "
      "and activations, beside the formulas\n"
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

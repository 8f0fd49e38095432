#include "analysis/study/study_run.h"

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/study/run_command.h"
#include "analysis/study/subprocess.h"
#include "analysis/study/trainer_path.h"
#include "analysis/throughput.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;

template <typename... Parts>
absl::Status Wrong(const std::string& path, const Parts&... parts) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", parts...));
}

absl::Status CheckCollectives(const RunTrace& run, const std::string& path) {
  for (const RankTrace& rank : run.ranks) {
    if (!rank.collectives.empty()) continue;
    return Wrong(path, "rank ", rank.run.rank, " measured nothing");
  }
  return absl::OkStatus();
}

// What a run of config.max_steps steps, or of the benchmark, must have.
absl::Status CheckRecords(const RunTrace& run, const StudyConfig& config,
                          const PlannedRun& planned, const std::string& path) {
  const RunRecord& opened = run.ranks[0].run;
  if (opened.binary != planned.trainer) {
    return Wrong(path, "holds a run of ", opened.binary, " instead of ",
                 planned.trainer);
  }
  if (opened.world_size != planned.world_size) {
    return Wrong(path, "the run had ", opened.world_size, " ranks instead of ",
                 planned.world_size);
  }
  if (static_cast<int64_t>(run.ranks.size()) != planned.world_size) {
    return Wrong(path, "has the records of ", run.ranks.size(), " of ",
                 planned.world_size, " ranks");
  }
  if (!planned.IsTraining()) return CheckCollectives(run, path);
  const auto throughput = MeasureThroughput(run, {config.warmup_steps});
  if (!throughput.ok()) return throughput.status();
  const int64_t steps = config.warmup_steps + throughput->steps;
  if (steps == config.max_steps) return absl::OkStatus();
  return Wrong(path, "holds ", steps, " steps instead of ", config.max_steps);
}

// The one run that the file of a finished run must hold.
absl::StatusOr<RunTrace> LoadChecked(const StudyConfig& config,
                                     const PlannedRun& planned,
                                     const std::string& path) {
  absl::StatusOr<std::vector<RunTrace>> runs = LoadRuns(path);
  if (!runs.ok()) return runs.status();
  if (runs->size() != 1) {
    return Wrong(path, "holds ", runs->size(), " runs instead of one");
  }
  absl::Status checked = CheckRecords(runs->front(), config, planned, path);
  if (!checked.ok()) return checked;
  return std::move(runs->front());
}

absl::StatusOr<CommandEnd> StartAndWait(const StudyConfig& config,
                                        const PlannedRun& planned,
                                        const std::string& trainer_dir,
                                        absl::Duration timeout,
                                        const RunPaths& paths) {
  const absl::StatusOr<std::string> binary =
      planned.IsTraining() ? TrainerPath(trainer_dir, planned.trainer)
                           : CommBenchPath(trainer_dir);
  if (!binary.ok()) return binary.status();
  std::error_code ignored;
  fs::remove(paths.incomplete, ignored);  // runs append to what is there
  Command command;
  command.arguments = RunArguments(config, planned, paths.incomplete);
  command.arguments.insert(command.arguments.begin(), *binary);
  command.output_path = paths.log;
  command.timeout = timeout;
  return RunCommand(command);
}

}  // namespace

RunPaths PathsOfRun(const std::string& dir, const PlannedRun& run) {
  const std::string record = absl::StrCat(dir, "/", run.FileStem(), ".jsonl");
  return {record, record + ".incomplete",
          absl::StrCat(dir, "/logs/", run.FileStem(), ".log")};
}

RunOutcome MakeRun(const StudyConfig& config, const PlannedRun& planned,
                   const std::string& trainer_dir, absl::Duration timeout,
                   const std::string& dir) {
  const RunPaths paths = PathsOfRun(dir, planned);
  RunOutcome outcome;
  const absl::StatusOr<CommandEnd> end =
      StartAndWait(config, planned, trainer_dir, timeout, paths);
  if (!end.ok()) {
    outcome.trace = end.status();
    return outcome;
  }
  outcome.elapsed = end->elapsed;
  outcome.interrupted_by = end->interrupted_by;
  if (!end->ok()) {
    outcome.trace = end->timed_out
                        ? absl::DeadlineExceededError(end->Describe())
                        : absl::UnknownError(end->Describe());
    return outcome;
  }
  outcome.trace = LoadChecked(config, planned, paths.incomplete);
  if (!outcome.trace.ok()) return outcome;
  std::error_code error;
  fs::rename(paths.incomplete, paths.record, error);
  if (error) {
    outcome.trace = Wrong(paths.record, "cannot be written: ", error.message());
  } else {
    outcome.trace->source = paths.record;
  }
  return outcome;
}

absl::StatusOr<RunTrace> FindFinishedRun(const StudyConfig& config,
                                         const PlannedRun& planned,
                                         const std::string& dir) {
  const RunPaths paths = PathsOfRun(dir, planned);
  std::error_code ignored;
  if (!fs::exists(paths.record, ignored)) {
    return absl::NotFoundError(absl::StrCat(paths.record, " is not there"));
  }
  absl::StatusOr<RunTrace> run = LoadChecked(config, planned, paths.record);
  if (run.ok()) return run;
  fs::rename(paths.record, paths.incomplete, ignored);
  return absl::NotFoundError(run.status().message());
}

}  // namespace rankwise

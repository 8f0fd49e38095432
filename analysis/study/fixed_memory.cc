#include "analysis/study/fixed_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/study/memory_search.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_run.h"
#include "analysis/throughput.h"

namespace rankwise {
namespace {

// The optimizer's first step has made its state. The search takes such short
// runs; host memory grows on for a while, so that its result is confirmed.
constexpr int64_t kProbeSteps = kMinMeasuredSteps + 1;

// A run that dies where smaller batches lived is taken to have wanted so many
// times the limit.
constexpr int64_t kTooLarge = 2;

StudyConfig ShortRuns(StudyConfig config) {
  config.max_steps = kProbeSteps;
  config.warmup_steps = 0;
  config.train_size = 0;
  config.traffic_steps = 0;
  return config;
}

// Of one cell, with runs as `config` says.
class Prober {
 public:
  Prober(StudyConfig config, const StudyRunnerConfig& runner, std::string dir,
         std::ostream& progress)
      : config_(std::move(config)),
        runner_(runner),
        dir_(std::move(dir)),
        progress_(progress) {}

  absl::Status Prepare() {
    return PrepareStudyFolder(dir_, FolderUse::kResume);
  }

  absl::StatusOr<int64_t> Probe(const PlannedRun& run) {
    config_.largest_global_batch = run.GlobalBatch();
    if (WasTooLarge(run)) return kTooLarge * config_.memory_limit_bytes;
    absl::StatusOr<RunTrace> trace = FindFinishedRun(config_, run, dir_);
    if (!trace.ok()) {
      RunOutcome outcome =
          MakeRun(config_, run, runner_.trainer_dir, runner_.run_timeout, dir_);
      interrupted_by_ = outcome.interrupted_by;
      trace = std::move(outcome.trace);
    }
    if (absl::IsUnknown(trace.status()) && interrupted_by_ == 0 &&
        run.batch_size > smallest_that_ran_) {
      return NoteTooLarge(run, trace.status());
    }
    if (!trace.ok()) {
      return absl::Status(
          trace.status().code(),
          absl::StrCat("probe of ", run.Name(), ": ", trace.status().message(),
                       "; its output is in ", PathsOfRun(dir_, run).log));
    }
    smallest_that_ran_ = std::min(smallest_that_ran_, run.batch_size);
    const absl::StatusOr<int64_t> peak = PeakMemory(*trace);
    if (peak.ok()) {
      progress_ << "Probe: " << run.Name() << ", " << config_.max_steps
                << " steps: " << MemoryText(*peak) << std::endl;
    }
    return peak;
  }

  // A batch known to run: those above it that die are too large.
  void KnowRuns(int64_t batch) {
    smallest_that_ran_ = std::min(smallest_that_ran_, batch);
  }
  int interrupted_by() const { return interrupted_by_; }

 private:
  // What says so in later sessions: the search then goes the same way.
  std::string Mark(const PlannedRun& run) const {
    return absl::StrCat(dir_, "/", run.FileStem(), ".too_large");
  }

  bool WasTooLarge(const PlannedRun& run) const {
    std::error_code ignored;
    return std::filesystem::exists(Mark(run), ignored);
  }

  int64_t NoteTooLarge(const PlannedRun& run, const absl::Status& status) {
    progress_ << "Probe: " << run.Name() << ": " << status.message()
              << ", which counts as too large; its output is in "
              << PathsOfRun(dir_, run).log << std::endl;
    std::ofstream(Mark(run)) << status.message() << "\n";
    return kTooLarge * config_.memory_limit_bytes;
  }

  StudyConfig config_;
  const StudyRunnerConfig& runner_;
  const std::string dir_;
  std::ostream& progress_;
  int64_t smallest_that_ran_ = std::numeric_limits<int64_t>::max();
  int interrupted_by_ = 0;
};

struct CellSearch {
  absl::StatusOr<MemoryFit> fit = absl::UnknownError("not searched");
  int interrupted_by = 0;
};

CellSearch SearchCell(const StudyConfig& config,
                      const StudyRunnerConfig& runner, PlannedRun run,
                      std::ostream& progress) {
  const std::string dir = runner.output_dir + "/probes";
  Prober brief(ShortRuns(config), runner, dir, progress);
  Prober whole(config, runner, dir + "/whole", progress);
  absl::Status prepared = brief.Prepare();
  prepared.Update(whole.Prepare());
  if (!prepared.ok()) return {prepared};
  MemorySearchConfig search;
  search.limit_bytes = config.memory_limit_bytes;
  const auto probe_with = [&run](Prober& prober) {
    return [&](int64_t batch) {
      run.batch_size = batch;
      return prober.Probe(run);
    };
  };
  CellSearch found;
  found.fit = LargestBatch(search, probe_with(brief));
  if (found.fit.ok()) {
    whole.KnowRuns(found.fit->probes.front().batch);
    found.fit = ConfirmBatch(search, *std::move(found.fit), probe_with(whole));
  }
  found.interrupted_by =
      std::max(brief.interrupted_by(), whole.interrupted_by());
  return found;
}

}  // namespace

absl::StatusOr<int64_t> PeakMemory(const RunTrace& run) {
  int64_t peak = 0;
  for (const RankTrace& rank : run.ranks) {
    if (!rank.memory.has_value()) {
      return absl::NotFoundError(
          absl::StrCat(run.source, ": rank ", rank.run.rank,
                       " recorded no peak memory (records since 1.3 do)"));
    }
    const int64_t device = rank.memory->peak_device_bytes;
    peak = std::max(peak, device > 0 ? device : rank.memory->peak_host_bytes);
  }
  return peak;
}

absl::StatusOr<FixedMemoryResult> FindFixedMemoryRuns(
    const StudyConfig& config, const StudyRunnerConfig& runner,
    std::ostream& progress) {
  FixedMemoryResult result;
  for (PlannedRun run : FixedMemoryRuns(config)) {
    const CellSearch found = SearchCell(config, runner, run, progress);
    result.interrupted_by = found.interrupted_by;
    if (result.interrupted_by != 0) return result;
    const absl::Status& status = found.fit.status();
    if (absl::IsOutOfRange(status)) {
      run.batch_size = MemorySearchConfig().multiple;  // the smallest
      return absl::OutOfRangeError(
          absl::StrCat("--memory_limit: ", run.Name(), ": ", status.message()));
    }
    if (!status.ok()) return status;
    run.batch_size = found.fit->batch;
    progress << "Under " << MemoryText(config.memory_limit_bytes) << ": "
             << run.Name() << std::endl;
    result.runs.push_back(run);
  }
  return result;
}

std::string OverLimitText(const StudyConfig& config,
                          absl::Span<const PlannedRun> fixed_memory,
                          absl::Span<const PlannedRun> plan,
                          absl::Span<const RunTrace> runs,
                          const std::string& dir) {
  std::set<std::string> cells;
  for (const PlannedRun& run : fixed_memory) cells.insert(run.CellStem());
  std::map<std::string, const RunTrace*> by_source;
  for (const RunTrace& run : runs) by_source[run.source] = &run;
  std::string text;
  for (const PlannedRun& run : plan) {
    const auto trace = by_source.find(PathsOfRun(dir, run).record);
    if (cells.count(run.CellStem()) == 0 || trace == by_source.end()) continue;
    const auto peak = PeakMemory(*trace->second);
    if (!peak.ok() || *peak <= config.memory_limit_bytes) continue;
    absl::StrAppend(&text, "Over --memory_limit, ",
                    MemoryText(config.memory_limit_bytes), ": ", run.Name(),
                    ", run ", run.repetition, ": ", MemoryText(*peak), "\n");
  }
  return text;
}

}  // namespace rankwise

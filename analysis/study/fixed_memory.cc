#include "analysis/study/fixed_memory.h"

#include <algorithm>
#include <limits>
#include <ostream>
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

// Memory is at its most after the optimizer's first step has made its state.
constexpr int64_t kProbeSteps = kMinMeasuredSteps + 1;

// A run that dies where smaller batches lived is taken to have wanted so many
// times the limit.
constexpr int64_t kTooLarge = 2;

// Of one cell.
class Prober {
 public:
  Prober(const StudyConfig& config, const StudyRunnerConfig& runner,
         std::ostream& progress)
      : config_(config),
        runner_(runner),
        dir_(runner.output_dir + "/probes"),
        progress_(progress) {
    config_.max_steps = kProbeSteps;
    config_.warmup_steps = 0;
    config_.train_size = 0;
    config_.traffic_steps = 0;
  }

  absl::Status Prepare() {
    return PrepareStudyFolder(dir_, FolderUse::kResume);
  }

  absl::StatusOr<int64_t> Probe(const PlannedRun& run) {
    config_.largest_global_batch = run.GlobalBatch();
    absl::StatusOr<RunTrace> trace = FindFinishedRun(config_, run, dir_);
    if (!trace.ok()) {
      RunOutcome outcome =
          MakeRun(config_, run, runner_.trainer_dir, runner_.run_timeout, dir_);
      interrupted_by_ = outcome.interrupted_by;
      trace = std::move(outcome.trace);
    }
    if (absl::IsUnknown(trace.status()) && interrupted_by_ == 0 &&
        run.batch_size > smallest_that_ran_) {
      progress_ << "Probe: " << run.Name() << ": " << trace.status().message()
                << ", which counts as too large; its output is in "
                << PathsOfRun(dir_, run).log << std::endl;
      return kTooLarge * config_.memory_limit_bytes;
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
      progress_ << "Probe: " << run.Name() << ": " << MemoryText(*peak)
                << std::endl;
    }
    return peak;
  }

  int interrupted_by() const { return interrupted_by_; }

 private:
  StudyConfig config_;
  const StudyRunnerConfig& runner_;
  const std::string dir_;
  std::ostream& progress_;
  int64_t smallest_that_ran_ = std::numeric_limits<int64_t>::max();
  int interrupted_by_ = 0;
};

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
  MemorySearchConfig search;
  search.limit_bytes = config.memory_limit_bytes;
  FixedMemoryResult result;
  for (PlannedRun run : FixedMemoryRuns(config)) {
    Prober prober(config, runner, progress);
    if (absl::Status status = prober.Prepare(); !status.ok()) return status;
    const absl::StatusOr<MemoryFit> fit =
        LargestBatch(search, [&](int64_t batch) {
          run.batch_size = batch;
          return prober.Probe(run);
        });
    result.interrupted_by = prober.interrupted_by();
    if (result.interrupted_by != 0) return result;
    if (absl::IsOutOfRange(fit.status())) {
      return absl::OutOfRangeError(absl::StrCat("--memory_limit: ", run.Name(),
                                                ": ", fit.status().message()));
    }
    if (!fit.ok()) return fit.status();
    run.batch_size = fit->batch;
    progress << "Under " << MemoryText(search.limit_bytes) << ": " << run.Name()
             << std::endl;
    result.runs.push_back(run);
  }
  return result;
}

}  // namespace rankwise

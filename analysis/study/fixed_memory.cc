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
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/study_config.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_run.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// One extrapolation goes no further: lines from small batches are coarse.
constexpr int64_t kLargestLeap = 16;

class Search {
 public:
  explicit Search(const MemorySearchConfig& config) : config_(config) {}

  void Add(const MemoryProbe& probe) {
    probes_.insert(
        std::upper_bound(probes_.begin(), probes_.end(), probe,
                         [](const MemoryProbe& a, const MemoryProbe& b) {
                           return a.batch < b.batch;
                         }),
        probe);
  }

  // The largest batch that fitted; expects that the smallest did.
  const MemoryProbe& Best() const {
    const MemoryProbe* best = &probes_.front();
    for (const MemoryProbe& probe : probes_) {
      if (Fits(probe)) best = &probe;
    }
    return *best;
  }

  // The batch to probe next; that of Best() where there is nothing to gain.
  int64_t Next() const {
    const int64_t best = Best().batch;
    int64_t below = config_.largest_batch + config_.multiple;
    for (const MemoryProbe& probe : probes_) {
      if (!Fits(probe)) below = std::min(below, probe.batch);
    }
    const int64_t next = RoundDown(
        std::min(Allowed(), static_cast<double>(best * kLargestLeap)));
    if (next <= best * (1 + config_.tolerance)) return best;
    return std::max(best, std::min(next, below - config_.multiple));
  }

  std::vector<MemoryProbe> Take() { return std::move(probes_); }

 private:
  bool Fits(const MemoryProbe& probe) const {
    return probe.peak_bytes <= config_.limit_bytes;
  }
  int64_t RoundDown(double batch) const {
    const double capped =
        std::min(batch, static_cast<double>(config_.largest_batch));
    return static_cast<int64_t>(capped) / config_.multiple * config_.multiple;
  }

  // By the line through Best() and the probe above it, or below it where there
  // is none above.
  double Allowed() const {
    size_t best = 0;
    while (probes_[best].batch != Best().batch) ++best;
    const size_t other = best + 1 < probes_.size() ? best + 1 : best - 1;
    const MemoryProbe& low = probes_[std::min(best, other)];
    const MemoryProbe& high = probes_[std::max(best, other)];
    const double slope = static_cast<double>(high.peak_bytes - low.peak_bytes) /
                         static_cast<double>(high.batch - low.batch);
    if (slope <= 0) return std::numeric_limits<double>::infinity();
    return low.batch +
           static_cast<double>(config_.limit_bytes - low.peak_bytes) / slope;
  }

  const MemorySearchConfig& config_;
  std::vector<MemoryProbe> probes_;  // by batch
};

// By the bytes per example between the outermost probes; never less than half.
int64_t SmallerBatch(const MemorySearchConfig& config, const MemoryFit& fit) {
  const MemoryProbe& low = fit.probes.front();
  const MemoryProbe& high = fit.probes.back();
  const double slope = static_cast<double>(high.peak_bytes - low.peak_bytes) /
                       static_cast<double>(high.batch - low.batch);
  const double over = static_cast<double>(fit.peak_bytes - config.limit_bytes);
  const double least = static_cast<double>(fit.batch) / 2;
  const double next =
      slope > 0 ? std::max(least, static_cast<double>(fit.batch) - over / slope)
                : least;
  const int64_t rounded =
      static_cast<int64_t>(next) / config.multiple * config.multiple;
  return std::clamp(rounded, config.multiple, fit.batch - config.multiple);
}

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

absl::StatusOr<MemoryFit> LargestBatch(
    const MemorySearchConfig& config,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe) {
  Search search(config);
  int64_t batch = config.multiple;
  for (int i = 0; i < config.max_probes; ++i) {
    ASSIGN_OR_RETURN(const int64_t peak, probe(batch));
    if (i == 0 && peak > config.limit_bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "needs ", MemoryText(peak), " with its smallest batch, ", batch,
          ", and the limit is ", MemoryText(config.limit_bytes)));
    }
    search.Add({batch, peak});
    batch = i == 0
                ? std::max(config.second_batch / config.multiple, int64_t{2}) *
                      config.multiple
                : search.Next();
    if (batch == search.Best().batch) break;
  }
  const MemoryProbe best = search.Best();
  return MemoryFit{best.batch, best.peak_bytes, search.Take()};
}

absl::StatusOr<MemoryFit> ConfirmBatch(
    const MemorySearchConfig& config, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run) {
  while (true) {
    ASSIGN_OR_RETURN(const int64_t peak, whole_run(fit.batch));
    fit.peak_bytes = peak;
    if (peak <= config.limit_bytes) return fit;
    if (fit.batch <= config.multiple) {
      return absl::OutOfRangeError(absl::StrCat(
          "needs ", MemoryText(peak), " over a whole run with its smallest ",
          "batch, ", fit.batch, ", and the limit is ",
          MemoryText(config.limit_bytes)));
    }
    fit.batch = SmallerBatch(config, fit);
  }
}

absl::StatusOr<int64_t> PeakMemory(const RunTrace& run) {
  int64_t peak = 0;
  for (const RankTrace& rank : run.ranks) {
    if (!rank.memory.has_value()) {
      return absl::NotFoundError(
          absl::StrCat(run.source, ": rank ", rank.run.rank,
                       " recorded no peak memory (records since 1.3 do)"));
    }
    peak = std::max(peak, static_cast<int64_t>(PeakBytes(rank)));
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

#include "analysis/study/fixed_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <ostream>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/study_folder.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// One extrapolation goes no further: lines from small batches are coarse.
constexpr int64_t kLargestLeap = 16;

// The optimizer's first step has made its state. The search takes such short
// runs; host memory grows on for a while, so that its result is confirmed.
constexpr int64_t kProbeSteps = kMinMeasuredSteps + 1;

// A run that dies where smaller batches lived is taken to have wanted this many
// times the limit.
constexpr int64_t kTooLarge = 2;

using Probe = MemoryProbes::const_iterator;

// Bytes per example between two probes.
double Slope(Probe low, Probe high) {
  return static_cast<double>(high->second - low->second) /
         static_cast<double>(high->first - low->first);
}

int64_t RoundedDown(const MemorySearchConfig& config, double batch) {
  return static_cast<int64_t>(batch) / config.multiple * config.multiple;
}

// The largest batch that fitted; expects that the smallest did.
Probe Best(const MemorySearchConfig& config, const MemoryProbes& probes) {
  Probe best = probes.begin();
  for (Probe probe = best; probe != probes.end(); ++probe) {
    if (probe->second <= config.limit_bytes) best = probe;
  }
  return best;
}

// What memory allows, by the line through the best probe and the one above it,
// or below it where there is none above.
double AllowedBatch(const MemorySearchConfig& config,
                    const MemoryProbes& probes) {
  const Probe best = Best(config, probes), above = std::next(best);
  const Probe low = above == probes.end() ? std::prev(best) : best;
  const double slope = Slope(low, std::next(low));
  if (slope <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(low->first) +
         static_cast<double>(config.limit_bytes - low->second) / slope;
}

// The batch to probe next; the best one where there is nothing to gain.
int64_t NextBatch(const MemorySearchConfig& config,
                  const MemoryProbes& probes) {
  const int64_t best = Best(config, probes)->first;
  const Probe failed = absl::c_find_if(probes, [&config](const auto& probe) {
    return probe.second > config.limit_bytes;
  });
  const int64_t most = std::min(best * kLargestLeap, config.largest_batch);
  const int64_t next = RoundedDown(
      config,
      std::min(AllowedBatch(config, probes), static_cast<double>(most)));
  if (static_cast<double>(next) <=
      static_cast<double>(best) * (1 + config.tolerance)) {
    return best;
  }
  if (failed == probes.end()) return next;
  return std::max(best, std::min(next, failed->first - config.multiple));
}

// By the bytes per example between the outermost probes; never less than half.
int64_t SmallerBatch(const MemorySearchConfig& config, const MemoryFit& fit) {
  const double slope = Slope(fit.probes.begin(), std::prev(fit.probes.end()));
  const double over = static_cast<double>(fit.peak_bytes - config.limit_bytes);
  const double batch = static_cast<double>(fit.batch);
  const double next =
      slope > 0 ? std::max(batch / 2, batch - over / slope) : batch / 2;
  return std::clamp(RoundedDown(config, next), config.multiple,
                    fit.batch - config.multiple);
}

// `during`: "with its smallest batch", ...
absl::Status NothingFits(const MemorySearchConfig& config, int64_t peak,
                         absl::string_view during, int64_t batch) {
  return absl::OutOfRangeError(
      absl::StrCat("needs ", MemoryText(peak), " ", during, ", ", batch,
                   ", and the limit is ", MemoryText(config.limit_bytes)));
}

StudyConfig ShortRuns(StudyConfig config) {
  config.max_steps = kProbeSteps;
  config.warmup_steps = 0;
  config.train_size = 0;
  config.traffic_steps = 0;
  return config;
}

// Of one cell, with runs as `config` says, whose records go to `dir`.
class Prober {
 public:
  Prober(StudyConfig config, StudyRunnerConfig runner, const std::string& dir,
         std::ostream& progress)
      : config_(std::move(config)),
        runner_(std::move(runner)),
        progress_(progress) {
    runner_.output_dir = dir;
  }

  // The peak memory of `run`, which is made unless it has been already.
  absl::StatusOr<int64_t> Probe(const PlannedRun& run) {
    config_.largest_global_batch = run.GlobalBatch();
    if (WasTooLarge(run)) return kTooLarge * config_.memory_limit_bytes;
    RETURN_IF_ERROR(PrepareStudyFolder(runner_.output_dir, FolderUse::kResume));
    absl::StatusOr<RunTrace> trace =
        FindFinishedRun(config_, run, runner_.output_dir);
    if (!trace.ok()) {
      RunOutcome outcome = MakeRun(config_, run, runner_);
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
                       "; its output is in ", LogOf(run)));
    }
    KnowRuns(run.batch_size);
    ASSIGN_OR_RETURN(const int64_t peak, PeakMemory(*trace));
    progress_ << "Probe: " << run.Name() << ", " << config_.max_steps
              << " steps: " << MemoryText(peak) << std::endl;
    return peak;
  }

  // A batch known to run: those above it that die are too large.
  void KnowRuns(int64_t batch) {
    smallest_that_ran_ = std::min(smallest_that_ran_, batch);
  }
  int interrupted_by() const { return interrupted_by_; }

 private:
  std::string LogOf(const PlannedRun& run) const {
    return PathsOfRun(runner_.output_dir, run).log;
  }

  // The file that says so in later sessions: the search then goes the same way.
  std::string Mark(const PlannedRun& run) const {
    return absl::StrCat(runner_.output_dir, "/", run.FileStem(), ".too_large");
  }

  bool WasTooLarge(const PlannedRun& run) const {
    std::error_code ignored;
    return std::filesystem::exists(Mark(run), ignored);
  }

  int64_t NoteTooLarge(const PlannedRun& run, const absl::Status& status) {
    progress_ << "Probe: " << run.Name() << ": " << status.message()
              << ", which counts as too large; its output is in " << LogOf(run)
              << std::endl;
    std::ofstream(Mark(run)) << status.message() << "\n";
    return kTooLarge * config_.memory_limit_bytes;
  }

  StudyConfig config_;
  StudyRunnerConfig runner_;
  std::ostream& progress_;
  int64_t smallest_that_ran_ = std::numeric_limits<int64_t>::max();
  int interrupted_by_ = 0;
};

// The largest batch of one cell; *interrupted_by: as in FixedMemoryResult.
absl::StatusOr<MemoryFit> SearchCell(const StudyConfig& config,
                                     const StudyRunnerConfig& runner,
                                     PlannedRun run, std::ostream& progress,
                                     int* interrupted_by) {
  const std::string dir = runner.output_dir + "/probes";
  Prober brief(ShortRuns(config), runner, dir, progress);
  Prober whole(config, runner, dir + "/whole", progress);
  const MemorySearchConfig search{.limit_bytes = config.memory_limit_bytes};
  const auto probe_with = [&run](Prober& prober) {
    return [&](int64_t batch) {
      run.batch_size = batch;
      return prober.Probe(run);
    };
  };
  absl::StatusOr<MemoryFit> fit = LargestBatch(search, probe_with(brief));
  if (fit.ok()) {
    whole.KnowRuns(fit->probes.begin()->first);
    fit = ConfirmBatch(search, *std::move(fit), probe_with(whole));
  }
  *interrupted_by = std::max(brief.interrupted_by(), whole.interrupted_by());
  return fit;
}

}  // namespace

absl::StatusOr<MemoryFit> LargestBatch(
    const MemorySearchConfig& config,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe) {
  MemoryProbes probes;
  int64_t batch = config.multiple;
  while (probes.count(batch) == 0 &&
         static_cast<int>(probes.size()) < config.max_probes) {
    ASSIGN_OR_RETURN(const int64_t peak, probe(batch));
    if (probes.empty() && peak > config.limit_bytes) {
      return NothingFits(config, peak, "with its smallest batch", batch);
    }
    probes[batch] = peak;
    batch = probes.size() == 1
                ? std::max(config.second_batch / config.multiple, int64_t{2}) *
                      config.multiple
                : NextBatch(config, probes);
  }
  const auto [best, peak] = *Best(config, probes);
  return MemoryFit{best, peak, std::move(probes)};
}

absl::StatusOr<MemoryFit> ConfirmBatch(
    const MemorySearchConfig& config, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run) {
  while (true) {
    ASSIGN_OR_RETURN(fit.peak_bytes, whole_run(fit.batch));
    if (fit.peak_bytes <= config.limit_bytes) return fit;
    if (fit.batch <= config.multiple) {
      return NothingFits(config, fit.peak_bytes,
                         "over a whole run with its smallest batch", fit.batch);
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
  for (PlannedRun run : PlanStudy(config).searched) {
    const absl::StatusOr<MemoryFit> fit =
        SearchCell(config, runner, run, progress, &result.interrupted_by);
    if (result.interrupted_by != 0) return result;
    if (absl::IsOutOfRange(fit.status())) {
      run.batch_size = MemorySearchConfig().multiple;  // the smallest
      return absl::OutOfRangeError(absl::StrCat("--memory_limit: ", run.Name(),
                                                ": ", fit.status().message()));
    }
    RETURN_IF_ERROR(fit.status());
    run.batch_size = fit->batch;
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

#include "analysis/study/fixed_memory.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "analysis/runs/cell.h"
#include "analysis/runs/throughput.h"
#include "analysis/study/study_folder.h"
#include "analysis/study/study_run.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kSmallestBatch = 8;  // others are multiples of it
constexpr int64_t kLargestBatch = 1 << 20;
constexpr int64_t kSecondBatch = 64;  // probed after the smallest
constexpr size_t kMaxProbes = 8;
// A batch this close to the memory limit is large enough.
constexpr double kTolerance = 0.05;

// Maximum factor of an extrapolation: lines from small batches are coarse.
constexpr int64_t kLargestLeap = 16;

// Enough steps for the optimizer to create its state. Host memory keeps growing
// for a while, so the result of these short runs is confirmed.
constexpr int64_t kProbeSteps = kMinMeasuredSteps + 1;

// A run that dies with more than the smallest batch counts as using this
// multiple of the limit.
constexpr int64_t kTooLarge = 2;

using Probe = MemoryProbes::const_iterator;

// Returns the bytes per example between two probes.
double Slope(Probe low, Probe high) {
  return static_cast<double>(high->second - low->second) /
         static_cast<double>(high->first - low->first);
}

int64_t RoundedDown(double batch) {
  return static_cast<int64_t>(batch) / kSmallestBatch * kSmallestBatch;
}

// Returns the largest batch that fits; the smallest one must fit.
Probe Best(int64_t limit_bytes, const MemoryProbes& probes) {
  Probe best = probes.begin();
  for (Probe probe = best; probe != probes.end(); ++probe) {
    if (probe->second <= limit_bytes) best = probe;
  }
  return best;
}

// Returns the largest batch allowed by the line through the best probe and the
// next one above, or below if there is none above.
double AllowedBatch(int64_t limit_bytes, const MemoryProbes& probes) {
  const Probe best = Best(limit_bytes, probes), above = std::next(best);
  const Probe low = above == probes.end() ? std::prev(best) : best;
  const double slope = Slope(low, std::next(low));
  if (slope <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(low->first) +
         static_cast<double>(limit_bytes - low->second) / slope;
}

// Returns the batch to probe next; the best one if there is nothing to gain.
int64_t NextBatch(int64_t limit_bytes, const MemoryProbes& probes) {
  const int64_t best = Best(limit_bytes, probes)->first;
  const Probe failed = absl::c_find_if(
      probes,
      [limit_bytes](const auto& probe) { return probe.second > limit_bytes; });
  const int64_t most = std::min(best * kLargestLeap, kLargestBatch);
  const int64_t next = RoundedDown(
      std::min(AllowedBatch(limit_bytes, probes), static_cast<double>(most)));
  if (static_cast<double>(next) <=
      static_cast<double>(best) * (1 + kTolerance)) {
    return best;
  }
  if (failed == probes.end()) return next;
  return std::max(best, std::min(next, failed->first - kSmallestBatch));
}

// Reduces the batch by the bytes per example between the outermost probes, at
// most by half.
int64_t SmallerBatch(int64_t limit_bytes, const MemoryFit& fit) {
  const double slope = Slope(fit.probes.begin(), std::prev(fit.probes.end()));
  const double over = static_cast<double>(fit.peak_bytes - limit_bytes);
  const double batch = static_cast<double>(fit.batch);
  const double next =
      slope > 0 ? std::max(batch / 2, batch - over / slope) : batch / 2;
  return std::clamp(RoundedDown(next), kSmallestBatch,
                    fit.batch - kSmallestBatch);
}

// `during`: "with its smallest batch", ...
absl::Status NothingFits(int64_t limit_bytes, int64_t peak,
                         absl::string_view during) {
  return absl::OutOfRangeError(absl::StrCat(
      "needs ", MemoryText(peak), " ", during, ", ", kSmallestBatch,
      ", and the limit is ", MemoryText(limit_bytes)));
}

// Returns the peak memory of the fullest rank: of its accelerators if it has
// any, else of its process. NotFound if a rank did not record it.
absl::StatusOr<int64_t> PeakMemory(const RunTrace& run) {
  for (const RankTrace& rank : run.ranks) {
    if (rank.memory.has_value()) continue;
    return absl::NotFoundError(
        absl::StrCat(run.source, ": rank ", rank.run.rank,
                     " recorded no peak memory (records since 1.3 do)"));
  }
  return static_cast<int64_t>(PeakBytes(run));
}

// Returns the peak memory of `run`; executes it unless config.output_dir has
// it.
absl::StatusOr<int64_t> ProbeRun(StudyConfig config, const PlannedRun& run,
                                 HeldSignals& signals) {
  const std::string& dir = config.output_dir;
  const std::string log = PathsOfRun(dir, run).log;
  const int64_t too_large = kTooLarge * config.memory_limit_bytes;
  // Repeats the same search in later sessions.
  const std::string mark = absl::StrCat(dir, "/", run.FileStem(), ".too_large");
  std::error_code ignored;
  if (std::filesystem::exists(mark, ignored)) return too_large;
  config.largest_global_batch = run.GlobalBatch();
  RETURN_IF_ERROR(PrepareStudyFolder(dir, FolderUse::kResume));
  absl::StatusOr<RunTrace> trace = FindFinishedRun(config, run);
  if (!trace.ok()) trace = MakeRun(config, run, signals);
  if (absl::IsUnknown(trace.status()) && run.batch_size > kSmallestBatch) {
    std::cout << "Probe: " << run.Name() << ": " << trace.status().message()
              << ", which counts as too large; its output is in " << log
              << std::endl;
    std::ofstream(mark) << trace.status().message() << "\n";
    return too_large;
  }
  if (!trace.ok()) {
    return absl::Status(
        trace.status().code(),
        absl::StrCat("probe of ", run.Name(), ": ", trace.status().message(),
                     "; its output is in ", log));
  }
  ASSIGN_OR_RETURN(const int64_t peak, PeakMemory(*trace));
  std::cout << "Probe: " << run.Name() << ", " << config.max_steps
            << " steps: " << MemoryText(peak) << std::endl;
  return peak;
}

// Searches the largest batch of one cell.
absl::StatusOr<MemoryFit> SearchCell(const StudyConfig& config, PlannedRun run,
                                     HeldSignals& signals) {
  run.times_layers = false;
  StudyConfig brief = config, whole = config;
  brief.output_dir += "/probes";
  brief.max_steps = kProbeSteps;
  brief.warmup_steps = brief.train_size = brief.traffic_steps = 0;
  whole.output_dir += "/probes/whole";
  const auto probe_by = [&run, &signals](const StudyConfig& probe) {
    return [&run, &signals, &probe](int64_t batch) {
      run.batch_size = batch;
      return ProbeRun(probe, run, signals);
    };
  };
  const int64_t limit = config.memory_limit_bytes;
  ASSIGN_OR_RETURN(MemoryFit fit, LargestBatch(limit, probe_by(brief)));
  return ConfirmBatch(limit, std::move(fit), probe_by(whole));
}

}  // namespace

absl::StatusOr<MemoryFit> LargestBatch(
    int64_t limit_bytes,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe) {
  MemoryProbes probes;
  int64_t batch = kSmallestBatch;
  while (probes.count(batch) == 0 && probes.size() < kMaxProbes) {
    ASSIGN_OR_RETURN(const int64_t peak, probe(batch));
    if (probes.empty() && peak > limit_bytes) {
      return NothingFits(limit_bytes, peak, "with its smallest batch");
    }
    probes[batch] = peak;
    batch = probes.size() == 1 ? kSecondBatch : NextBatch(limit_bytes, probes);
  }
  const auto [best, peak] = *Best(limit_bytes, probes);
  return MemoryFit{best, peak, std::move(probes)};
}

absl::StatusOr<MemoryFit> ConfirmBatch(
    int64_t limit_bytes, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run) {
  while (true) {
    ASSIGN_OR_RETURN(fit.peak_bytes, whole_run(fit.batch));
    if (fit.peak_bytes <= limit_bytes) return fit;
    if (fit.batch <= kSmallestBatch) {
      return NothingFits(limit_bytes, fit.peak_bytes,
                         "over a whole run with its smallest batch");
    }
    fit.batch = SmallerBatch(limit_bytes, fit);
  }
}

absl::StatusOr<std::vector<PlannedRun>> FindFixedMemoryRuns(
    const StudyConfig& config, HeldSignals& signals) {
  std::vector<PlannedRun> found;
  for (PlannedRun run : PlanStudy(config).searched) {
    const auto fit = SearchCell(config, run, signals);
    if (absl::IsOutOfRange(fit.status())) {
      run.batch_size = kSmallestBatch;
      return absl::OutOfRangeError(absl::StrCat("--memory_limit: ", run.Name(),
                                                ": ", fit.status().message()));
    }
    RETURN_IF_ERROR(fit.status());
    run.batch_size = fit->batch;
    std::cout << "Under " << MemoryText(config.memory_limit_bytes) << ": "
              << run.Name() << std::endl;
    found.push_back(run);
  }
  return found;
}

std::string OverLimitText(const StudyConfig& config,
                          absl::Span<const PlannedRun> fixed_memory,
                          absl::Span<const RunTrace> runs) {
  std::map<std::string, const RunTrace*> by_source;
  for (const RunTrace& run : runs) by_source[run.source] = &run;
  std::string text;
  for (PlannedRun run : fixed_memory) {
    for (run.repetition = 1; run.repetition <= config.repetitions;
         ++run.repetition) {
      const auto trace =
          by_source.find(PathsOfRun(config.output_dir, run).record);
      if (trace == by_source.end()) continue;
      const auto peak = PeakMemory(*trace->second);
      if (!peak.ok() || *peak <= config.memory_limit_bytes) continue;
      absl::StrAppend(&text, "Over --memory_limit, ",
                      MemoryText(config.memory_limit_bytes), ": ", run.Name(),
                      ", run ", run.repetition, ": ", MemoryText(*peak), "\n");
    }
  }
  return text;
}

}  // namespace rankwise

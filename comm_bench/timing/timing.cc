#include "comm_bench/timing/timing.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "ATen/detail/CUDAHooksInterface.h"
#include "comm_bench/timing/batch.h"

namespace rankwise::comm_bench {
namespace {

using End = Series::End;

constexpr int64_t kFirstBatch = 6;  // as many as an interval takes
constexpr int64_t kLargestBatch = 1 << 20;
constexpr double kBatchSeconds = 0.2;   // the longest batch
constexpr double kWindowSlack = 0.5;    // share of the median duration
constexpr double kWindowMargin = 2e-4;  // seconds
constexpr double kWindowGrowth = 16;    // at most
constexpr double kLateShare = 0.1;  // of a batch: its windows were too short

double LatestArrival(const TimingConfig& config) {
  double latest = 0;
  for (const double arrival : config.arrival_seconds) {
    latest = std::max(latest, arrival);
  }
  return latest;
}

// Of an iteration, at most: one that measures itself may keep the host longer
// than it says.
double HostSeconds(const TimingConfig& config, const WarmUp& warm_up) {
  if (config.own_seconds == nullptr) return warm_up.iteration_seconds;
  return std::max(warm_up.iteration_seconds, warm_up.pace_seconds);
}

// What is known of a series so far; the same on every rank.
class Progress {
 public:
  Progress(const TimingConfig& config, const WarmUp& warm_up)
      : config_(config),
        pace_seconds_(warm_up.pace_seconds),
        window_seconds_((1 + kWindowSlack) * HostSeconds(config, warm_up) +
                        kWindowMargin + LatestArrival(config) +
                        (config.before_each ? warm_up.pace_seconds : 0)),
        longest_window_seconds_(kWindowGrowth * window_seconds_) {}

  int64_t NextCount() const;
  double window_seconds() const { return window_seconds_; }
  void Add(const Batch& batch);
  // Whether, and why, the series is over.
  std::optional<End> Ended() const;
  Series Finish(End end);

 private:
  void Append(const Batch& batch);
  void FlagLate();
  bool IsPrecise() const;

  const TimingConfig& config_;
  Series series_;
  std::vector<double> planned_seconds_;
  double elapsed_seconds_ = 0;
  double pace_seconds_;  // from one iteration to the next; 0: not known
  double window_seconds_;
  const double longest_window_seconds_;
  int64_t next_batch_ = kFirstBatch;
  bool stop_ = false;
};

int64_t Progress::NextCount() const {
  const bool counted = config_.iterations > 0;
  const int64_t limit = counted ? config_.iterations : config_.max_iterations;
  double seconds = kBatchSeconds;
  if (!counted) {
    seconds = std::min(seconds, config_.max_seconds - elapsed_seconds_);
  }
  const bool windows = config_.sync == Sync::kWindow;
  const double pace = std::max(pace_seconds_, windows ? window_seconds_ : 0);
  int64_t affordable = 1;
  if (pace > 0 && seconds > pace) {
    affordable = static_cast<int64_t>(seconds / pace);
  }
  return std::min({limit - series_.iterations(), next_batch_, affordable});
}

void Progress::Add(const Batch& batch) {
  const int64_t before = series_.iterations();
  Append(batch);
  FlagLate();
  const auto& late_ones = series_.late;
  const auto late = static_cast<double>(
      late_ones.end() -
      std::lower_bound(late_ones.begin(), late_ones.end(), before));
  if (config_.sync == Sync::kWindow && late > kLateShare * batch.iterations()) {
    window_seconds_ = std::min(2 * window_seconds_, longest_window_seconds_);
  }
  pace_seconds_ =
      (batch.elapsed_seconds - elapsed_seconds_) / batch.iterations();
  elapsed_seconds_ = batch.elapsed_seconds;
  next_batch_ = std::min(2 * next_batch_, kLargestBatch);
  stop_ = batch.stop;
}

void Progress::Append(const Batch& batch) {
  const auto append = [](const auto& from, auto& to) {
    to.insert(to.end(), from.begin(), from.end());
  };
  append(batch.seconds, series_.seconds);
  append(batch.start_seconds, series_.start_seconds);
  append(batch.extents, series_.extents);
  append(batch.planned_seconds, planned_seconds_);
  series_.clock_error_seconds =
      std::max(series_.clock_error_seconds, batch.clock_error_seconds);
}

void Progress::FlagLate() {
  if (config_.sync == Sync::kWindow) {
    series_.late = MissedWindows(series_, planned_seconds_);
  } else if (config_.sync == Sync::kBarrier) {
    series_.late = LeftBarrierLate(series_);
  }
}

bool Progress::IsPrecise() const {
  const Summary summary = Summarize(series_, config_.across);
  if (summary.samples < std::max(kFewestSamples, config_.min_iterations)) {
    return false;
  }
  return MedianOf(summary).reach() <= config_.precision * summary.median;
}

std::optional<End> Progress::Ended() const {
  const int64_t done = series_.iterations();
  if (stop_) return End::kInterrupted;
  if (config_.iterations > 0) {
    if (done >= config_.iterations) return End::kCounted;
    return std::nullopt;
  }
  if (IsPrecise()) return End::kPrecise;
  if (done >= config_.max_iterations) return End::kMaxIterations;
  const bool out_of_time = elapsed_seconds_ >= config_.max_seconds;
  if (out_of_time && done >= config_.min_iterations) return End::kOutOfTime;
  return std::nullopt;
}

Series Progress::Finish(End end) {
  series_.end = end;
  double earliest = std::numeric_limits<double>::infinity();
  for (const Extent& extent : series_.extents) {
    earliest = std::min(earliest, extent.first_start);
  }
  for (Extent& extent : series_.extents) {
    for (double* time :
         {&extent.first_start, &extent.last_start, &extent.last_end,
          &extent.first_undelayed_start, &extent.last_undelayed_start}) {
      *time -= earliest;
    }
  }
  for (double& start : series_.start_seconds) start -= earliest;
  return std::move(series_);
}

}  // namespace

Series TimeIterationsOnClock(const RankClock& clock, Control& control,
                             const Iteration& iteration,
                             const TimingConfig& config,
                             const std::atomic<bool>* stop) {
  BatchRunner runner(control, iteration, config, clock, stop);
  const WarmUp warm_up = RunWarmUp(runner, config);
  Progress progress(config, warm_up);
  if (warm_up.stop) return progress.Finish(End::kInterrupted);
  runner.Restart();
  while (true) {
    progress.Add(runner.Run(progress.NextCount(), config.sync,
                            progress.window_seconds()));
    if (const auto end = progress.Ended()) return progress.Finish(*end);
  }
}

Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config,
                      const std::atomic<bool>* stop) {
  return TimeIterationsOnClock(HostClock(), control, iteration, config, stop);
}

void SynchronizeDevice(c10::Device device) {
  if (device.is_cuda()) {
    at::detail::getCUDAHooks().deviceSynchronize(device.index());
  }
}

}  // namespace rankwise::comm_bench

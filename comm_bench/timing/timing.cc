#include "comm_bench/timing/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "analysis/stats/statistics.h"
#include "parallel/clock/clock_sync.h"

namespace rankwise::comm_bench {
namespace {

using End = Series::End;

constexpr int64_t kFirstBatch = 6;
// Minimum for ending a series as precise: stopping at the first narrow interval
// favours intervals that are narrow by chance, more often so with fewer
// samples.
constexpr int64_t kFewestToBePrecise = 42;
constexpr int64_t kLargestBatch = 1 << 20;
constexpr double kBatchSeconds = 0.2;   // duration of the longest batch
constexpr double kWindowSlack = 0.5;    // share of the median duration
constexpr double kWindowMargin = 2e-4;  // seconds
constexpr double kWindowGrowth = 16;    // maximum
// of a batch, above which its windows were too short
constexpr double kLateShare = 0.1;

// Interval between clock comparisons.
constexpr double kClockSeconds = 0.1;
// Time from the agreement on a window's first start to that start.
constexpr double kLeadSeconds = 2e-3;
// number of values in the medians compared during warm-up
constexpr size_t kWidth = 5;
constexpr double kTolerance = 0.1;

double ArrivalOf(int rank, const std::vector<double>& arrival_seconds) {
  const auto index = static_cast<size_t>(rank);
  return index < arrival_seconds.size() ? arrival_seconds[index] : 0;
}

double MedianBefore(const std::vector<double>& values, size_t end) {
  const size_t begin = end < kWidth ? 0 : end - kWidth;
  return Median(absl::MakeConstSpan(values).subspan(begin, end - begin));
}

// All times except durations are on rank 0's clock, since the runner's restart.
struct Batch {
  std::vector<double> seconds, start_seconds;  // of this rank

  // equal on every rank
  std::vector<Extent> extents;
  // planned starts of iterations under kWindow, without deliberate delays;
  // otherwise empty
  std::vector<double> planned_seconds;
  // from the start of the first batch to the end of this one, on the slowest
  // rank
  double elapsed_seconds = 0;
  double clock_error_seconds = 0;
  bool stop = false;  // set on any rank

  int64_t iterations() const { return static_cast<int64_t>(extents.size()); }
};

// Runs iterations on all ranks together. All methods are collective. The data
// exchanged per batch is independent of the number of ranks, which reduce their
// samples to extents. The references must outlive it.
class BatchRunner {
 public:
  BatchRunner(Control& control, const Iteration& iteration,
              const TimingConfig& config, RankClock clock,
              const std::atomic<bool>* stop)
      : control_(control),
        iteration_(iteration),
        config_(config),
        stop_(stop),
        arrival_seconds_(ArrivalOf(control.rank(), config.arrival_seconds)),
        sync_(control, std::move(clock)) {
    Restart();
  }

  // `window_seconds` is the interval between planned starts under kWindow.
  Batch Run(int64_t count, Sync sync, double window_seconds = 0) {
    RefreshClock();
    Batch batch;
    const auto& now = sync_.clock().now;
    const double first =
        sync == Sync::kWindow ? LatestRootNow() + kLeadSeconds : 0;
    if (sync == Sync::kNone) control_.Barrier();
    for (int64_t i = 0; i < count; ++i) {
      const double planned = first + i * window_seconds;
      Align(sync, planned);
      const double start = now();
      iteration_(next_index_++);
      const double end = now();
      batch.start_seconds.push_back(sync_.RootTime(start) - origin_);
      batch.seconds.push_back(
          config_.own_seconds == nullptr ? end - start : config_.own_seconds());
      if (sync == Sync::kWindow) {
        batch.planned_seconds.push_back(planned - origin_);
      }
    }
    Exchange(batch);
    elapsed_ = batch.elapsed_seconds;
    return batch;
  }

  // Resets elapsed_seconds.
  void Restart() {
    begin_ = sync_.clock().now();
    origin_ = LatestRootNow();
    elapsed_ = clock_refreshed_ = 0;
  }

 private:
  // elapsed_ is equal on all ranks, so all refresh their clocks in the same
  // batch.
  void RefreshClock() {
    if (elapsed_ - clock_refreshed_ < kClockSeconds) return;
    clock_refreshed_ = elapsed_;
    sync_.Update();
  }

  double LatestRootNow() { return control_.Max({sync_.RootNow()})[0]; }

  void Align(Sync sync, double planned) {
    if (config_.before_each != nullptr) config_.before_each();
    const RankClock& clock = sync_.clock();
    if (sync == Sync::kWindow) {
      WaitUntil(clock, sync_.OwnTime(planned) + arrival_seconds_);
      return;
    }
    if (sync == Sync::kBarrier) control_.Barrier();
    if (arrival_seconds_ > 0) WaitUntil(clock, clock.now() + arrival_seconds_);
  }

  // Minima over ranks are exchanged as maxima of negated values.
  void Exchange(Batch& batch) {
    const bool failed = config_.failure != nullptr && !config_.failure->ok();
    const bool stopped = stop_ != nullptr && *stop_;
    std::vector<double> own = {failed || stopped ? 1.0 : 0.0,
                               sync_.clock().now() - begin_,
                               sync_.error_seconds()};
    for (size_t i = 0; i < batch.seconds.size(); ++i) {
      const double start = batch.start_seconds[i];
      const double undelayed = start - arrival_seconds_;
      own.insert(own.end(), {-start, start, start + batch.seconds[i],
                             -undelayed, undelayed, batch.seconds[i]});
    }
    const std::vector<double> largest = control_.Max(own);
    const std::vector<double> sums = control_.Sum(batch.seconds);
    batch.stop = largest[0] != 0;
    batch.elapsed_seconds = largest[1];
    batch.clock_error_seconds = largest[2];
    auto next = largest.begin() + 3;
    for (const double sum : sums) {
      batch.extents.push_back({.first_start = -next[0],
                               .last_start = next[1],
                               .last_end = next[2],
                               .first_undelayed_start = -next[3],
                               .last_undelayed_start = next[4],
                               .slowest_seconds = next[5],
                               .mean_seconds = sum / control_.world_size()});
      next += 6;
    }
  }

  Control& control_;
  const Iteration& iteration_;
  const TimingConfig& config_;
  const std::atomic<bool>* const stop_;
  const double arrival_seconds_;  // this rank's
  ClockSync sync_;
  int64_t next_index_ = 0;
  double begin_ = 0;    // on this rank's clock
  double origin_ = 0;   // origin of the batches' times, on rank 0's clock
  double elapsed_ = 0;  // at the end of the last batch; equal on all ranks
  double clock_refreshed_ = 0;  // value of elapsed_
};

// Equal on every rank. Zeros without iterations.
struct WarmUp {
  double iteration_seconds = 0;  // median of the last five, on the slowest rank
  double pace_seconds = 0;       // interval between iterations
  bool stop = false;             // set on any rank
};

// Returns the size of the warm-up's next batch; 0 when the warm-up is complete.
int64_t NextWarmUpCount(const TimingConfig& config,
                        const std::vector<double>& done,
                        double elapsed_seconds) {
  const auto count = static_cast<int64_t>(done.size());
  int64_t wanted = static_cast<int64_t>(kWidth);
  if (config.warmup >= 0) {
    const int64_t least = config.sync == Sync::kWindow ? 1 : 0;
    wanted = std::min(wanted, std::max(config.warmup, least) - count);
  }
  if (count == 0) return std::min<int64_t>(wanted, 1);
  const double pace = elapsed_seconds / count;
  if (config.warmup < 0) {
    const double left = config.max_warmup_seconds - elapsed_seconds;
    if (left <= 0 || IsStable(done)) return 0;
    if (pace > 0)
      wanted = std::min(wanted, static_cast<int64_t>(left / pace) + 1);
  }
  return wanted;
}

// Collective. Ranks synchronize by barriers if `config` requests kWindow, as
// the windows are sized by the results.
WarmUp RunWarmUp(BatchRunner& runner, const TimingConfig& config) {
  const Sync sync = config.sync == Sync::kNone ? Sync::kNone : Sync::kBarrier;
  WarmUp result;
  std::vector<double> slowest;
  double elapsed = 0;
  while (const int64_t count = NextWarmUpCount(config, slowest, elapsed)) {
    const Batch batch = runner.Run(count, sync);
    for (const Extent& extent : batch.extents) {
      slowest.push_back(extent.slowest_seconds);
    }
    result.pace_seconds = (batch.elapsed_seconds - elapsed) / count;
    elapsed = batch.elapsed_seconds;
    result.stop = batch.stop;
    if (batch.stop) break;
  }
  if (!slowest.empty()) {
    result.iteration_seconds = MedianBefore(slowest, slowest.size());
  }
  return result;
}

double LatestArrival(const TimingConfig& config) {
  double latest = 0;
  for (const double arrival : config.arrival_seconds) {
    latest = std::max(latest, arrival);
  }
  return latest;
}

// Returns an upper bound of an iteration's host time: one that measures itself
// may occupy the host longer than it reports.
double HostSeconds(const TimingConfig& config, const WarmUp& warm_up) {
  if (config.own_seconds == nullptr) return warm_up.iteration_seconds;
  return std::max(warm_up.iteration_seconds, warm_up.pace_seconds);
}

// The state of a series; equal on every rank.
class Progress {
 public:
  Progress(const TimingConfig& config, const WarmUp& warm_up)
      : config_(config),
        pace_seconds_(warm_up.pace_seconds),
        window_seconds_((1 + kWindowSlack) * HostSeconds(config, warm_up) +
                        kWindowMargin + LatestArrival(config) +
                        (config.before_each ? warm_up.pace_seconds : 0)),
        longest_window_seconds_(kWindowGrowth * window_seconds_) {}

  int64_t NextCount() const {
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

  double window_seconds() const { return window_seconds_; }
  void Add(const Batch& batch) {
    const int64_t before = series_.iterations();
    Append(batch);
    FlagLate();
    const auto& late_ones = series_.late;
    const auto late = static_cast<double>(
        late_ones.end() -
        std::lower_bound(late_ones.begin(), late_ones.end(), before));
    if (config_.sync == Sync::kWindow &&
        late > kLateShare * batch.iterations()) {
      window_seconds_ = std::min(2 * window_seconds_, longest_window_seconds_);
    }
    pace_seconds_ =
        (batch.elapsed_seconds - elapsed_seconds_) / batch.iterations();
    elapsed_seconds_ = batch.elapsed_seconds;
    next_batch_ = std::min(2 * next_batch_, kLargestBatch);
    stop_ = batch.stop;
  }

  // Returns why the series has ended, or nullopt.
  std::optional<End> Ended() const {
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

  Series Finish(End end) {
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

 private:
  void Append(const Batch& batch) {
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

  void FlagLate() {
    if (config_.sync == Sync::kWindow) {
      series_.late = MissedWindows(series_, planned_seconds_);
    } else if (config_.sync == Sync::kBarrier) {
      series_.late = LeftBarrierLate(series_);
    }
  }

  bool IsPrecise() const {
    const Summary summary = Summarize(series_, config_.across);
    if (summary.samples <
        std::max(kFewestToBePrecise, config_.min_iterations)) {
      return false;
    }
    return MedianOf(summary).reach() <= config_.precision * summary.median;
  }

  const TimingConfig& config_;
  Series series_;
  std::vector<double> planned_seconds_;
  double elapsed_seconds_ = 0;
  double pace_seconds_;  // interval between iterations; 0 if unknown
  double window_seconds_;
  const double longest_window_seconds_;
  int64_t next_batch_ = kFirstBatch;
  bool stop_ = false;
};

}  // namespace

bool IsStable(const std::vector<double>& values) {
  if (values.size() < 2 * kWidth) return false;
  const double before = MedianBefore(values, values.size() - kWidth);
  const double now = MedianBefore(values, values.size());
  return std::abs(now - before) <= kTolerance * before;
}

Series TimeIterations(Control& control, const Iteration& iteration,
                      const TimingConfig& config, const std::atomic<bool>* stop,
                      const RankClock& clock) {
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

}  // namespace rankwise::comm_bench

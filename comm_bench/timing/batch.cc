#include "comm_bench/timing/batch.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace rankwise::comm_bench {
namespace {

// Clocks are compared again when they were not for so long.
constexpr double kClockSeconds = 0.1;
// From the agreement on a window's first start until then.
constexpr double kLeadSeconds = 2e-3;
constexpr size_t kWidth = 5;  // of the medians that the warm-up compares
constexpr double kTolerance = 0.1;

double ArrivalOf(int rank, const std::vector<double>& arrival_seconds) {
  const auto index = static_cast<size_t>(rank);
  return index < arrival_seconds.size() ? arrival_seconds[index] : 0;
}

double MedianBefore(const std::vector<double>& values, size_t end) {
  const size_t begin = end < kWidth ? 0 : end - kWidth;
  return Median({values.begin() + begin, values.begin() + end});
}

// Of the warm-up's next batch; 0 when the warm-up is over.
int64_t NextCount(const TimingConfig& config, const std::vector<double>& done,
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

}  // namespace

BatchRunner::BatchRunner(Control& control, const Iteration& iteration,
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

void BatchRunner::Restart() {
  begin_ = sync_.clock().now();
  origin_ = LatestRootNow();
  elapsed_ = clock_refreshed_ = 0;
}

Batch BatchRunner::Run(int64_t count, Sync sync, double window_seconds) {
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

// All ranks know the same elapsed_, and so do this in the same batch.
void BatchRunner::RefreshClock() {
  if (elapsed_ - clock_refreshed_ < kClockSeconds) return;
  clock_refreshed_ = elapsed_;
  sync_.Update();
}

double BatchRunner::LatestRootNow() {
  return control_.Max({sync_.RootNow()})[0];
}

void BatchRunner::Align(Sync sync, double planned) {
  if (config_.before_each != nullptr) config_.before_each();
  const RankClock& clock = sync_.clock();
  if (sync == Sync::kWindow) {
    WaitUntil(clock, sync_.OwnTime(planned) + arrival_seconds_);
    return;
  }
  if (sync == Sync::kBarrier) control_.Barrier();
  if (arrival_seconds_ > 0) WaitUntil(clock, clock.now() + arrival_seconds_);
}

// The smallest of the ranks' values is told as the largest of their negatives.
void BatchRunner::Exchange(Batch& batch) {
  const bool failed = config_.failure != nullptr && !config_.failure->ok();
  const bool stopped = stop_ != nullptr && *stop_;
  std::vector<double> own = {failed || stopped ? 1.0 : 0.0,
                             sync_.clock().now() - begin_,
                             sync_.error_seconds()};
  for (size_t i = 0; i < batch.seconds.size(); ++i) {
    const double start = batch.start_seconds[i];
    const double undelayed = start - arrival_seconds_;
    own.insert(own.end(), {-start, start, start + batch.seconds[i], -undelayed,
                           undelayed, batch.seconds[i]});
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

bool IsStable(const std::vector<double>& values) {
  if (values.size() < 2 * kWidth) return false;
  const double before = MedianBefore(values, values.size() - kWidth);
  const double now = MedianBefore(values, values.size());
  return std::abs(now - before) <= kTolerance * before;
}

WarmUp RunWarmUp(BatchRunner& runner, const TimingConfig& config) {
  const Sync sync = config.sync == Sync::kNone ? Sync::kNone : Sync::kBarrier;
  WarmUp result;
  std::vector<double> slowest;
  double elapsed = 0;
  while (const int64_t count = NextCount(config, slowest, elapsed)) {
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

}  // namespace rankwise::comm_bench

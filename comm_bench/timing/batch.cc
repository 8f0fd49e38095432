#include "comm_bench/timing/batch.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/types/span.h"

namespace rankwise::comm_bench {
namespace {

// Clocks are compared again when they were not for so long.
constexpr double kClockSeconds = 0.1;
// From the agreement on a window's first start until then.
constexpr double kLeadSeconds = 2e-3;

// What a rank tells before its samples: durations, then starts.
enum Header { kStop, kElapsed, kClockError, kHeaderSize };

double ArrivalOf(int rank, const std::vector<double>& arrival_seconds) {
  const auto index = static_cast<size_t>(rank);
  return index < arrival_seconds.size() ? arrival_seconds[index] : 0;
}

}  // namespace

BatchRunner::BatchRunner(Control& control, const Iteration& iteration,
                         const TimingConfig& config, RankClock clock,
                         const std::atomic<bool>* stop)
    : control_(control),
      iteration_(iteration),
      stop_(stop),
      before_each_(config.before_each),
      own_seconds_(config.own_seconds),
      arrival_seconds_(ArrivalOf(control.rank(), config.arrival_seconds)),
      sync_(control, std::move(clock)) {
  Restart();
}

void BatchRunner::Restart() {
  begin_ = sync_.clock().now();
  elapsed_ = clock_refreshed_ = 0;
}

Batch BatchRunner::Run(int64_t count, Sync sync, double window_seconds) {
  RefreshClock();
  std::vector<double> samples(kHeaderSize + 2 * count);
  double* const durations = samples.data() + kHeaderSize;
  double* const starts = durations + count;
  const auto& now = sync_.clock().now;
  const double first = sync == Sync::kWindow ? FirstStart() : 0;
  if (sync == Sync::kNone) control_.Barrier();
  for (int64_t i = 0; i < count; ++i) {
    Align(sync, first + i * window_seconds);
    const double start = now();
    iteration_(next_index_++);
    const double end = now();
    starts[i] = sync_.RootTime(start);
    durations[i] = own_seconds_ == nullptr ? end - start : own_seconds_();
  }
  Batch batch = Exchange(std::move(samples));
  for (int64_t i = 0; sync == Sync::kWindow && i < count; ++i) {
    batch.planned_seconds.push_back(first + i * window_seconds);
  }
  elapsed_ = batch.elapsed_seconds;
  return batch;
}

// All ranks know the same elapsed_, and so do this in the same batch.
void BatchRunner::RefreshClock() {
  if (elapsed_ - clock_refreshed_ < kClockSeconds) return;
  clock_refreshed_ = elapsed_;
  sync_.Update();
}

double BatchRunner::FirstStart() {
  const double own = sync_.RootNow();
  double latest = own;
  for (const auto& now : control_.Gather(absl::MakeConstSpan(&own, 1))) {
    latest = std::max(latest, now[0]);
  }
  return latest + kLeadSeconds;
}

void BatchRunner::Align(Sync sync, double planned) {
  if (before_each_ != nullptr) before_each_();
  const RankClock& clock = sync_.clock();
  if (sync == Sync::kWindow) {
    WaitUntil(clock, sync_.OwnTime(planned) + arrival_seconds_);
    return;
  }
  if (sync == Sync::kBarrier) control_.Barrier();
  if (arrival_seconds_ > 0) WaitUntil(clock, clock.now() + arrival_seconds_);
}

Batch BatchRunner::Exchange(std::vector<double> message) const {
  message[kStop] = stop_ != nullptr && *stop_;
  message[kElapsed] = sync_.clock().now() - begin_;
  message[kClockError] = sync_.error_seconds();
  Batch batch;
  for (const auto& values : control_.Gather(message)) {
    batch.stop |= values[kStop] != 0;
    batch.elapsed_seconds = std::max(batch.elapsed_seconds, values[kElapsed]);
    batch.clock_error_seconds =
        std::max(batch.clock_error_seconds, values[kClockError]);
    const auto durations = values.begin() + kHeaderSize;
    const auto starts = durations + (values.size() - kHeaderSize) / 2;
    batch.seconds.emplace_back(durations, starts);
    batch.start_seconds.emplace_back(starts, values.end());
  }
  return batch;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/timing/warm_up.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm_bench/timing/order_statistics.h"

namespace rankwise::comm_bench {
namespace {

constexpr size_t kWidth = 5;  // of the medians compared
constexpr double kTolerance = 0.1;

double MedianOf(const std::vector<double>& values, size_t end) {
  const size_t begin = end < kWidth ? 0 : end - kWidth;
  return Median({values.begin() + begin, values.begin() + end});
}

void AppendSlowest(const Batch& batch, std::vector<double>& slowest) {
  for (int64_t i = 0; i < batch.iterations(); ++i) {
    double longest = 0;
    for (const auto& seconds : batch.seconds) {
      longest = std::max(longest, seconds[i]);
    }
    slowest.push_back(longest);
  }
}

// Of the next batch, 0 when the warm-up is over.
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

bool IsStable(const std::vector<double>& values) {
  if (values.size() < 2 * kWidth) return false;
  const double before = MedianOf(values, values.size() - kWidth);
  const double now = MedianOf(values, values.size());
  return std::abs(now - before) <= kTolerance * before;
}

WarmUp RunWarmUp(BatchRunner& runner, const TimingConfig& config) {
  const Sync sync = config.sync == Sync::kNone ? Sync::kNone : Sync::kBarrier;
  WarmUp result;
  std::vector<double> slowest;
  double elapsed = 0;
  while (const int64_t count = NextCount(config, slowest, elapsed)) {
    const Batch batch = runner.Run(count, sync);
    AppendSlowest(batch, slowest);
    result.pace_seconds = (batch.elapsed_seconds - elapsed) / count;
    elapsed = batch.elapsed_seconds;
    result.stop = batch.stop;
    if (batch.stop) break;
  }
  if (!slowest.empty()) {
    result.iteration_seconds = MedianOf(slowest, slowest.size());
  }
  return result;
}

}  // namespace rankwise::comm_bench

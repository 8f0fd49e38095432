#include "analysis/study/memory_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "analysis/study/study_config.h"

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

}  // namespace

absl::StatusOr<MemoryFit> LargestBatch(
    const MemorySearchConfig& config,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe) {
  Search search(config);
  int64_t batch = config.multiple;
  for (int i = 0; i < config.max_probes; ++i) {
    const absl::StatusOr<int64_t> peak = probe(batch);
    if (!peak.ok()) return peak.status();
    if (i == 0 && *peak > config.limit_bytes) {
      return absl::OutOfRangeError(absl::StrCat(
          "needs ", MemoryText(*peak), " with its smallest batch, ", batch,
          ", and the limit is ", MemoryText(config.limit_bytes)));
    }
    search.Add({batch, *peak});
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
    const absl::StatusOr<int64_t> peak = whole_run(fit.batch);
    if (!peak.ok()) return peak.status();
    fit.peak_bytes = *peak;
    if (*peak <= config.limit_bytes) return fit;
    if (fit.batch <= config.multiple) {
      return absl::OutOfRangeError(absl::StrCat(
          "needs ", MemoryText(*peak), " over a whole run with its smallest ",
          "batch, ", fit.batch, ", and the limit is ",
          MemoryText(config.limit_bytes)));
    }
    fit.batch = SmallerBatch(config, fit);
  }
}

}  // namespace rankwise

// Some iterations on all ranks together, and what the ranks tell each other of
// them; the iterations before counting starts.
#ifndef RANKWISE_COMM_BENCH_TIMING_BATCH_H_
#define RANKWISE_COMM_BENCH_TIMING_BATCH_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "comm_bench/timing/timing.h"
#include "parallel/clock/clock_sync.h"

namespace rankwise::comm_bench {

// All times but durations are on rank 0's clock, since the runner's restart.
struct Batch {
  std::vector<double> seconds, start_seconds;  // of this rank

  // The same on every rank.
  std::vector<Extent> extents;
  // kWindow: when the iterations were to start, arrivals left aside; else
  // empty.
  std::vector<double> planned_seconds;
  // From the begin of the first batch to the end of this, on the slowest rank.
  double elapsed_seconds = 0;
  double clock_error_seconds = 0;
  bool stop = false;  // on any rank

  int64_t iterations() const { return static_cast<int64_t>(extents.size()); }
};

// Collective throughout. What the ranks exchange for a batch does not grow with
// their number: they reduce their samples to extents. The references must
// outlive it.
class BatchRunner {
 public:
  BatchRunner(Control& control, const Iteration& iteration,
              const TimingConfig& config, RankClock clock,
              const std::atomic<bool>* stop);

  // `window_seconds`: of kWindow, from one planned start to the next.
  Batch Run(int64_t count, Sync sync, double window_seconds = 0);
  // Starts elapsed_seconds anew.
  void Restart();

 private:
  void RefreshClock();
  double LatestRootNow();
  void Align(Sync sync, double planned);
  void Exchange(Batch& batch);

  Control& control_;
  const Iteration& iteration_;
  const TimingConfig& config_;
  const std::atomic<bool>* const stop_;
  const double arrival_seconds_;  // of this rank
  ClockSync sync_;
  int64_t next_index_ = 0;
  double begin_ = 0;            // on this rank's clock
  double origin_ = 0;           // of the batches' times, on rank 0's clock
  double elapsed_ = 0;          // at the end of the last batch, on all ranks
  double clock_refreshed_ = 0;  // as elapsed_
};

// The same on every rank. Zeros without iterations.
struct WarmUp {
  double iteration_seconds = 0;  // median of the last five, slowest rank
  double pace_seconds = 0;       // from one iteration to the next
  bool stop = false;             // on any rank
};

// Collective. As many iterations as `config` says; ranks line up by barriers
// where it says kWindow, as windows are sized by what is learnt here.
WarmUp RunWarmUp(BatchRunner& runner, const TimingConfig& config);

// Whether the median of the last five values differs from that of the five
// before by at most a tenth of the latter. False below ten.
bool IsStable(const std::vector<double>& values);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_BATCH_H_

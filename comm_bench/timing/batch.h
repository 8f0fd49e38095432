// Some iterations on all ranks together, and the exchange of their samples.
#ifndef RANKWISE_COMM_BENCH_TIMING_BATCH_H_
#define RANKWISE_COMM_BENCH_TIMING_BATCH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "comm_bench/timing/timing_config.h"
#include "parallel/comm/clock_sync.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// The same on every rank.
struct Batch {
  std::vector<std::vector<double>> seconds;        // [rank][iteration]
  std::vector<std::vector<double>> start_seconds;  // on rank 0's clock
  // kWindow: when the iterations were to start, arrivals left aside; else
  // empty.
  std::vector<double> planned_seconds;
  // From the begin of the first batch to the end of this, on the slowest rank.
  double elapsed_seconds = 0;
  double clock_error_seconds = 0;
  bool stop = false;  // on any rank

  int64_t iterations() const { return seconds[0].size(); }
};

// Collective throughout. The references must outlive it.
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
  double FirstStart();
  void Align(Sync sync, double planned);
  Batch Exchange(std::vector<double> message) const;

  Control& control_;
  const Iteration& iteration_;
  const std::atomic<bool>* const stop_;
  const std::function<void()> before_each_;
  const std::function<double()> own_seconds_;
  const double arrival_seconds_;  // of this rank
  ClockSync sync_;
  int64_t next_index_ = 0;
  double begin_ = 0;            // on this rank's clock
  double elapsed_ = 0;          // at the end of the last batch, on all ranks
  double clock_refreshed_ = 0;  // as elapsed_
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_BATCH_H_

// A clock shared by all ranks: rank 0's.
#ifndef RANKWISE_PARALLEL_CLOCK_CLOCK_SYNC_H_
#define RANKWISE_PARALLEL_CLOCK_CLOCK_SYNC_H_

#include <memory>
#include <vector>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/control.h"

namespace rankwise {

class Communicator;

// Converts between this rank's clock and rank 0's. The offset comes from the
// exchange with rank 0 that had the shortest round trip; rank 0's answer is
// assumed to come from the middle of it (Cristian 1989), so the error is at
// most half the round trip. Ranks that read rank 0's own clock exchange nothing
// and are exact.
//
// Clocks drift apart, so the bound grows by 50 us per second. Update replaces
// an estimate by one with a smaller bound.
class ClockSync {
 public:
  // Collective, like Update. Rethrows the exception of a failed message.
  ClockSync(Control& control, RankClock clock);
  // Synchronises HostClock() over the ranks of `comm`. Without peers (nullptr,
  // or the fake backend) this rank's clock counts as rank 0's.
  explicit ClockSync(Communicator* comm);

  void Update();

  double RootTime(double own_time) const { return own_time + offset_; }
  double OwnTime(double root_time) const { return root_time - offset_; }
  double RootNow() const { return RootTime(clock_.now()); }
  // Current error bound of RootTime and OwnTime on this rank.
  double error_seconds() const;
  const RankClock& clock() const { return clock_; }

 private:
  void Start();
  void FindForeign();
  void Serve(int rank);
  void MeasureOffset();

  const std::unique_ptr<Control> own_control_;
  Control* const control_;  // nullptr without peers
  const RankClock clock_;
  std::vector<int> foreign_;  // ranks that do not read rank 0's clock
  double offset_ = 0;
  double error_ = 0;  // bound at `estimated_`
  double estimated_ = 0;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_CLOCK_CLOCK_SYNC_H_

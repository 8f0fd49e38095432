// Repeats what one rank communicated in one step.
#ifndef RANKWISE_COMM_BENCH_MODES_STEP_REPLAY_H_
#define RANKWISE_COMM_BENCH_MODES_STEP_REPLAY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/modes/replay_plan.h"
#include "records/record.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise::comm_bench {

// By the ranks of the job in them, in their order; that of all ranks is found
// under no ranks.
using ReplayGroups =
    std::map<std::vector<int64_t>, c10::intrusive_ptr<c10d::ProcessGroup>>;

// Not thread-safe. Buffers are made once, zero-filled.
class StepReplay {
 public:
  // `record` must outlive it and have passed CheckTraffic; `groups` has all of
  // its groups.
  StepReplay(const TrafficRecord& record, double lead_in_seconds,
             const ReplayGroups& groups, c10::Device device);
  ~StepReplay();
  StepReplay(StepReplay&&) noexcept;

  // Repeats the step; all ranks call it together. Returns the seconds that it
  // took without its gaps, which are slept through, or left out where
  // `keep_gaps` is false. Throws what a failed call throws.
  double Run(bool keep_gaps);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_STEP_REPLAY_H_

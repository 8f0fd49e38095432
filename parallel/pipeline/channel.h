// Messages between the ranks of one pipeline, over a process group.
#ifndef RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_
#define RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_

#include <set>
#include <utility>
#include <vector>

#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/pipeline/actions.h"
#include "parallel/pipeline/mail.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// Messages go one by one, never coalesced: ProcessGroupNCCL matches by order,
// not by tag, and has a communicator and a stream for every two ranks that
// exchange single messages, but runs what is coalesced on the communicator of
// the whole group. A batch on one side would wait there for a message that the
// other side, where it was no batch, sends elsewhere.
class Channel : public Mail {
 public:
  // `ranks[i]`: the rank within `group` of the pipeline's rank i.
  Channel(c10::intrusive_ptr<c10d::ProcessGroup> group, std::vector<int> ranks,
          int rank, c10::Device device);
  ~Channel() override;

  int num_ranks() const { return static_cast<int>(ranks_.size()); }

  void Start(P2POp& transfer) override;

  // Every rank's `values`, by rank; as many on each. Called by all ranks.
  std::vector<std::vector<double>> Gather(const std::vector<double>& values);

  // NCCL connects two ranks at their first message, and blocks the host of the
  // one until the other has come as far. Here the pairs of ranks that
  // `schedule` has messages between meet in one order on all ranks, which
  // cannot end in a circle as the order of messages could. Called by all ranks;
  // each pair meets once. Nothing on a CPU.
  void Connect(const Schedule& schedule);

 private:
  void Complete(P2POp& transfer) override;
  // Both send and receive; the lower rank sends first.
  std::vector<double> Exchange(int peer, const std::vector<double>& values);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<int> ranks_;
  std::set<int> connected_;  // peers
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_CHANNEL_H_

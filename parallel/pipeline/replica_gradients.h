// What pipelines exchange besides activations: the average of gradients over
// replicas, replica 0's buffers, and the sum over the two stages that share a
// weight.
#ifndef RANKWISE_PARALLEL_PIPELINE_REPLICA_GRADIENTS_H_
#define RANKWISE_PARALLEL_PIPELINE_REPLICA_GRADIENTS_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/device/later_seconds.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace rankwise {

// Averages gradients over the ranks of `group`, which hold the same stages of
// replicated pipelines: one all-reduce per stage, started when the stage's last
// gradient is there and running while other stages still compute. Not
// thread-safe; throws what the process group throws.
class ReplicaGradients {
 public:
  // Null for a single replica: nothing is exchanged then.
  // `skip_communication`, for comparison: gradients are put together and back,
  // but stay the rank's own.
  ReplicaGradients(c10::intrusive_ptr<c10d::ProcessGroup> group, int replicas,
                   bool skip_communication = false);
  ~ReplicaGradients();

  // Starts averaging the gradients of those of `parameters` that require one,
  // after what the current stream has been given. Every replica passes the same
  // parameters in the same order; one that a replica did not use counts there
  // as zeros, so that all of them end with the same gradients. Leave them alone
  // until Finish.
  void Start(const std::vector<at::Tensor>& parameters);

  // Blocks until every average is in place (on an accelerator the current
  // stream, not the host). Returns how long that took.
  LaterSeconds Finish();

 private:
  struct Bucket {
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> flat;         // one tensor, the sum in flight
    c10::intrusive_ptr<c10d::Work> work;  // null without communication
  };
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const int replicas_;
  const bool skip_communication_;
  std::vector<Bucket> buckets_;
};

// Overwrites `buffers` on all ranks of `group`, replicas of one stage, with
// those of its rank 0, as DistributedDataParallel does before a forward. All
// call it. Nothing to do without a group or buffers. Returns how long it took.
LaterSeconds BroadcastBuffers(
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::vector<at::Tensor>& buffers);

// Replaces the gradient of `weight`, zeros where it has none, by the sum of it
// and `peer`'s, the same bits on both, for a weight that the first and the last
// stage share (tied embeddings). Both call it; `tag` must be the same, and used
// for nothing else.
void AddUpSharedGradient(c10d::ProcessGroup& group, int peer, int tag,
                         const at::Tensor& weight);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_REPLICA_GRADIENTS_H_

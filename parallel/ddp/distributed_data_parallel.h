// DistributedDataParallel: PyTorch's own gradient reducer, driven from C++.
//
// c10d::Reducer groups gradients into buckets and all-reduces each bucket as
// soon as backward has filled it, which hides communication behind computation
// (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2). This class
// performs the surrounding steps of Python's
// torch.nn.parallel.DistributedDataParallel in the same order, so both give the
// same losses, step for step.
#ifndef RANKWISE_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_
#define RANKWISE_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "parallel/comm/group.h"
#include "parallel/ddp/gradient_sync.h"
#include "parallel/ddp/order/bucket_fill.h"
#include "parallel/device/device_event.h"
#include "torch/types.h"

namespace torch::nn {
class Module;
}
namespace c10d {
class Reducer;
}  // namespace c10d

namespace rankwise {

struct DdpConfig {
  int64_t bucket_cap_bytes = kBucketCapBytes;  // approximate bucket size
  // Size of the first bucket, small so that communication starts early. Capped
  // at bucket_cap_bytes.
  int64_t first_bucket_bytes = kFirstBucketBytes;
  // If positive, splits the last gradients of the last bucket, at most this
  // many bytes, off into a bucket of their own: no computation remains to hide
  // its reduction. Does not split a last bucket of at most this size, or one
  // whose last gradient alone is larger. PyTorch has no such bucket. Must be 0
  // with find_unused_parameters without static_graph, where buckets do not
  // follow the order of the gradients.
  int64_t last_bucket_bytes = 0;
  // Makes p.grad() a view of its bucket after backward, which saves copying
  // reduced gradients back.
  bool gradient_as_bucket_view = true;
  // Searches for parameters that the step does not use; costs one traversal of
  // the graph and one small all-reduce per step.
  bool find_unused_parameters = false;
  // Promises that the set of used parameters and the order of their use never
  // change. Unused parameters are found once, in the first backward, which does
  // not overlap and reduces even without sync.
  bool static_graph = false;
  bool broadcast_buffers = true;  // from rank 0, before forward
  // Reduces gradients as 16-bit floats; divides before the sum, as Python's
  // fp16_compress_hook does.
  enum class CommHook { kNone, kFp16, kBf16 };
  CommHook comm_hook = CommHook::kNone;
  // For comparison: fills and reads buckets as usual but leaves gradients and
  // buffers local to the rank. Incompatible with find_unused_parameters, whose
  // all-reduce the reducer issues itself, and with a comm_hook.
  bool skip_communication = false;
};

// Returns an event that marks the end of backward's own work on `device`,
// before it waits for communication. Call before backward(), which starts from
// `output` and sets the event. Autograd ends a backward by running callbacks in
// the order in which they were queued, on the streams of the caller of
// backward(). c10d::Reducer queues one when it launches the last bucket; it
// makes the stream wait for all buckets (finalize_backward). A callback queued
// when backward begins runs earlier: after the gradients and before the wait.
std::shared_ptr<std::optional<DeviceEvent>> RecordBackwardEnd(
    const at::Tensor& output, c10::Device device);

class DistributedDataParallel : public DataParallelEngine {
 public:
  // Verifies that all ranks of the group hold the same model (VerifyModel),
  // then broadcasts the first rank's parameters and buffers. A collective call
  // of the group, which must have a process group. `module` and the group's
  // communicator must outlive the result; the module's parameters must not be
  // replaced, moved or frozen meanwhile.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      torch::nn::Module& module, const Group& group, const DdpConfig& config);
  ~DistributedDataParallel() override;

  void BeforeForward() override;
  void BeforeBackward(const std::vector<torch::Tensor>& outputs) override;

  // Throws c10::Error naming the parameters without a gradient if the step
  // needed find_unused_parameters or static_graph; PyTorch's own error comes
  // one forward later. Other ranks may be waiting for the bucket, so the
  // process should exit.
  void AfterBackward() override;

  void SetSync(bool sync) override { sync_ = sync; }

  PendingDuration TakeExposedComm() override {
    return std::exchange(exposed_, PendingDuration());
  }

  // Returns the bytes of each gradient bucket, in launch order. There is one
  // bucket before the first step, from whose gradients PyTorch then builds the
  // buckets in order of arrival. With find_unused_parameters and without
  // static_graph, buckets follow the reverse order of registration throughout.
  std::vector<int64_t> bucket_bytes() const;

  // Returns the gradients of each bucket in order, "2,1;0", as indices into the
  // parameters that require gradients. The last bits of sums over three or more
  // ranks depend on it. A collective call.
  std::string BucketOrder() override;
  // Adopts the bucket order of another engine of the same model, to continue
  // with equal sums. Call before the first step; ignores malformed text.
  void UseBucketOrder(const std::string& order) override;

 private:
  DistributedDataParallel(torch::nn::Module& module, const Group& group,
                          const DdpConfig& config);
  absl::Status CheckParameters() const;
  void BuildReducer();
  void RegisterCommHook();
  // Returns the parameter indices of each bucket.
  std::vector<std::vector<size_t>> Buckets() const;
  // Rebuilds the buckets in gradient arrival order once that order is known.
  void RebuildBuckets();
  void CheckReduced(bool communicated);
  std::vector<std::string> MissingGradients() const;
  // Returns whether to record the end of this backward on the device.
  bool MarksBackward() const;

  torch::nn::Module& module_;
  const Group group_;
  const c10::Device device_;
  const DdpConfig config_;
  std::vector<std::string> names_;  // of the reducer's parameters
  std::vector<torch::Tensor> parameters_;
  std::vector<bool> expect_sparse_;
  std::shared_ptr<c10d::Reducer> reducer_;
  // Set once last_bucket_bytes has split a bucket; the reducer still lists the
  // buckets that it made itself.
  std::vector<std::vector<size_t>> split_buckets_;

  bool sync_ = true;
  bool step_syncs_ = false;    // whether the current backward reduces gradients
  bool buffers_stale_ = true;  // broadcast before the next forward
  bool graph_recorded_ = false;       // static_graph: after the first step
  std::vector<int64_t> ready_times_;  // per parameter, before this backward
  int64_t backward_start_ns_ = 0;
  // Time at which LocalHook last returned a bucket, in steady-clock
  // nanoseconds; 0 before the first. nullptr unless skip_communication.
  std::shared_ptr<std::atomic<int64_t>> last_local_bucket_;
  // RecordBackwardEnd of the current backward; nullptr if not recorded (CPU).
  std::shared_ptr<std::optional<DeviceEvent>> backward_end_;
  PendingDuration exposed_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_

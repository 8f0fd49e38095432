// DistributedDataParallel: PyTorch's own gradient reducer, driven from C++.
//
// c10d::Reducer groups gradients into buckets and all-reduces each one as soon
// as backward has filled it, so that communication hides behind computation
// (Li et al., "PyTorch Distributed", VLDB 2020, section 3.2). This class does
// what Python's torch.nn.parallel.DistributedDataParallel does around it, in
// the same order: the two give the same losses, step for step.
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
  int64_t bucket_cap_bytes = kBucketCapBytes;  // a bucket's size, about
  // The first bucket's, small so that communication starts early. Not above
  // bucket_cap_bytes: the smaller of the two holds.
  int64_t first_bucket_bytes = kFirstBucketBytes;
  // Above 0: the last gradients of the last bucket, at most this many bytes,
  // are split off into a bucket of their own, because no backward is left to
  // hide its reduction. Nothing is split where the last bucket is no larger
  // than this, or its last gradient alone is larger. PyTorch has no such
  // bucket. Not with find_unused_parameters without static_graph, where buckets
  // do not follow the order of the gradients.
  int64_t last_bucket_bytes = 0;
  // p.grad() is a view of its bucket after backward: saves copying reduced
  // gradients back.
  bool gradient_as_bucket_view = true;
  // Look for parameters that the step does not use; costs a walk of the graph
  // and one small all-reduce a step.
  bool find_unused_parameters = false;
  // The set of used parameters and the order of their use never change: unused
  // ones are found once, in the first backward, which does not overlap and
  // reduces even without sync.
  bool static_graph = false;
  bool broadcast_buffers = true;  // from rank 0, before forward
  // Send gradients as 16-bit floats; divides before the sum, as Python's
  // fp16_compress_hook does.
  enum class CommHook { kNone, kFp16, kBf16 };
  CommHook comm_hook = CommHook::kNone;
  // For comparison: buckets are filled and read as before, but gradients and
  // buffers stay the rank's own. Not with find_unused_parameters, whose
  // all-reduce the reducer makes by itself, nor with a comm_hook.
  bool skip_communication = false;
};

// Marks where backward's own work ends on `device`, before it waits for
// communication. Call before backward() from `output`, which fills in the
// event. Autograd ends a backward with callbacks, in the order in which they
// were queued, on the streams of whoever called backward(). c10d::Reducer
// queues one when the last bucket is launched, which makes the stream wait for
// all buckets (finalize_backward). What is queued when backward begins comes
// before it: after the gradients and before the waiting.
std::shared_ptr<std::optional<DeviceEvent>> WatchBackwardEnd(
    const at::Tensor& output, c10::Device device);

class DistributedDataParallel : public DataParallelEngine {
 public:
  // Refuses a model that is not the same on all ranks of the group
  // (VerifyModel), then gives every rank the first one's parameters and
  // buffers. A collective call of the group, which must have a process group.
  // `module` and the group's communicator must outlive the result; the module's
  // parameters must not be replaced, moved or frozen meanwhile.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      torch::nn::Module& module, const Group& group, const DdpConfig& config);
  ~DistributedDataParallel() override;

  void BeforeForward() override;
  void BeforeBackward(const std::vector<torch::Tensor>& outputs) override;

  // Throws c10::Error naming the parameters that got no gradient, where
  // find_unused_parameters or static_graph would have been needed. PyTorch's
  // own error comes one forward later. Other ranks may be waiting for the
  // bucket, so end the process then.
  void AfterBackward() override;

  void SetSync(bool sync) override { sync_ = sync; }

  PendingDuration TakeExposedComm() override {
    return std::exchange(exposed_, PendingDuration());
  }

  // Bytes of each gradient bucket, in the order of their launch. One bucket
  // before the first step; PyTorch then rebuilds them in the order in which
  // gradients arrive.
  std::vector<int64_t> bucket_bytes() const;

  // Which gradients share a bucket, in which order: "2,1;0", numbers of those
  // parameters that require gradients. Sums of three ranks or more depend on it
  // in their last bits. A collective call.
  std::string BucketOrder() override;
  // Takes it from another engine of the same model, so as to go on as that one
  // would have. Before the first step; any other text changes nothing.
  void UseBucketOrder(const std::string& order) override;

 private:
  DistributedDataParallel(torch::nn::Module& module, const Group& group,
                          const DdpConfig& config);
  absl::Status CheckParameters() const;
  void BuildReducer();
  void RegisterCommHook();
  // The numbers of the parameters in each bucket.
  std::vector<std::vector<size_t>> Buckets() const;
  // In the order in which gradients arrived, once it is known.
  void RebuildBuckets();
  void CheckReduced(bool communicated);
  std::vector<std::string> MissingGradients() const;
  // Whether the end of this backward is to be marked on the device.
  bool MarksBackward() const;

  torch::nn::Module& module_;
  const Group group_;
  const c10::Device device_;
  const DdpConfig config_;
  std::vector<std::string> names_;  // of the reducer's parameters
  std::vector<torch::Tensor> parameters_;
  std::vector<bool> expect_sparse_;
  std::shared_ptr<c10d::Reducer> reducer_;
  // Once last_bucket_bytes has split one; the reducer goes on listing the
  // buckets that it made itself.
  std::vector<std::vector<size_t>> split_buckets_;

  bool sync_ = true;
  bool step_syncs_ = false;      // the backward under way reduces gradients
  bool buffers_stale_ = true;    // broadcast them before the next forward
  bool graph_recorded_ = false;  // static_graph: the first step is done
  std::vector<int64_t> ready_times_;  // per parameter, before this backward
  int64_t backward_start_ns_ = 0;
  // With skip_communication: when a bucket was last handed over, in nanoseconds
  // of the steady clock; 0 before the first. Else null.
  std::shared_ptr<std::atomic<int64_t>> last_local_bucket_;
  // WatchBackwardEnd of the current backward; null where it is not marked, as
  // on a CPU.
  std::shared_ptr<std::optional<DeviceEvent>> backward_end_;
  PendingDuration exposed_;
};

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_DISTRIBUTED_DATA_PARALLEL_H_

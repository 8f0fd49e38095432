// Batch normalisation whose statistics are those of all ranks' batches
// together. Under data parallelism a BatchNorm layer sees its rank's share
// only, which changes the training with the number of ranks; this one does not.
#ifndef RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_
#define RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_

#include <ostream>

#include "c10/util/intrusive_ptr.h"
#include "torch/nn/module.h"
#include "torch/nn/options/batchnorm.h"
#include "torch/nn/pimpl.h"
#include "torch/types.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// Parameters and buffers of a BatchNorm layer, under the same names; the
// tensors may be undefined, as they are in a layer without them.
struct BatchNormState {
  torch::nn::BatchNormOptions options;
  torch::Tensor weight, bias;
  torch::Tensor running_mean, running_var, num_batches_tracked;
};

// As torch.nn.SyncBatchNorm, on CPUs too.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  SyncBatchNormImpl(const BatchNormState& state,
                    c10::intrusive_ptr<c10d::ProcessGroup> group);

  // [B, C, ...] to the same. Training: a collective of the group, as are its
  // backwards (sync_batch_norm_function.h); B may differ between ranks and be
  // 0. A batch of fewer than two values per channel over all ranks leaves the
  // running statistics alone. In evaluation, and in a group of one rank, what
  // BatchNorm does, without communication. Throws c10::Error.
  torch::Tensor forward(const torch::Tensor& x);

  void pretty_print(std::ostream& stream) const override;

 private:
  torch::Tensor ForwardAlone(const torch::Tensor& x);
  torch::Tensor ForwardTogether(const torch::Tensor& x);

  const torch::nn::BatchNormOptions options_;
  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  torch::Tensor weight_, bias_;
  torch::Tensor running_mean_, running_var_, num_batches_tracked_;
};

TORCH_MODULE(SyncBatchNorm);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_

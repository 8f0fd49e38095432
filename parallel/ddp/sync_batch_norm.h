// Batch normalisation whose statistics are those of all ranks' batches
// together. Under data parallelism a BatchNorm layer sees its rank's share
// only, which changes the training with the number of ranks; this one does not.
#ifndef RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_
#define RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_

#include <cstdint>
#include <ostream>
#include <utility>

#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "torch/nn/module.h"
#include "torch/nn/options/batchnorm.h"
#include "torch/nn/pimpl.h"
#include "torch/types.h"

namespace rankwise {

// Puts a SyncBatchNorm in place of every BatchNorm1d, 2d and 3d below `model`,
// with the layer's own tensors: parameters, buffers and names stay as they are,
// and with them optimizers and checkpoints. Returns how many were replaced; a
// layer that several modules share counts once.
// Reaches layers that are called through a Sequential, a ModuleList or a
// ModuleDict, or through their parent's named_children(). FailedPrecondition
// for one that something else still holds (a typed member, a function) and
// would go on calling, and for a `model` that is itself such a layer; the model
// cannot be used afterwards.
absl::StatusOr<int64_t> ConvertToSyncBatchNorm(torch::nn::Module& model,
                                               const Group& group);

// As torch.nn.SyncBatchNorm, on CPUs too.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // Takes the options of `layer`, a BatchNorm of any dimension, and its
  // parameters and buffers under the same names. Those that are undefined there
  // stay undefined.
  template <typename BatchNorm>
  SyncBatchNormImpl(const BatchNorm& layer, Group group)
      : torch::nn::Module("SyncBatchNorm"),
        options_(layer.options),
        group_(std::move(group)),
        weight_(layer.weight),
        bias_(layer.bias),
        running_mean_(layer.running_mean),
        running_var_(layer.running_var),
        num_batches_tracked_(layer.num_batches_tracked) {
    Register();
  }

  // [B, C, ...] to the same. Training: a collective of the group, as are its
  // backwards (SyncBatchNormForward); B may differ between ranks and be
  // 0. A batch of fewer than two values per channel over all ranks leaves the
  // running statistics alone. In evaluation, and in a group of one rank, what
  // BatchNorm does, without communication. Throws c10::Error.
  torch::Tensor forward(const torch::Tensor& x);

  void pretty_print(std::ostream& stream) const override;

 private:
  void Register();
  torch::Tensor ForwardAlone(const torch::Tensor& x);
  torch::Tensor ForwardTogether(const torch::Tensor& x);

  const torch::nn::BatchNormOptions options_;
  const Group group_;
  torch::Tensor weight_, bias_;
  torch::Tensor running_mean_, running_var_, num_batches_tracked_;
};

TORCH_MODULE(SyncBatchNorm);

// Of the whole batch, the same on every rank. [C] each, of fp32, or of fp64
// where the input is.
struct BatchMoments {
  at::Tensor mean;
  at::Tensor invstd;             // 1 / sqrt(biased variance + eps)
  at::Tensor unbiased_variance;  // 0 where there is one value per channel
  at::Tensor count;              // [1], fp64: values per channel
};

struct SyncedBatch {
  at::Tensor output;  // as x: shape, dtype, memory format
  BatchMoments moments;
};

// x: [B, C, ...]; B may differ between ranks and be 0 on some. weight and bias:
// both [C], or both undefined.
// A collective of `group`: one exchange now, and one all-reduce of 2C values in
// the backward if x needs a gradient, so backwards too run in the same order on
// all ranks. The gradients of weight and bias are those of this rank's
// examples, for data parallelism to average. Has no second derivative. Plain
// tensor operations on any device, none of which waits for it. Throws
// c10::Error.
SyncedBatch SyncBatchNormForward(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double eps,
                                 const Group& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_

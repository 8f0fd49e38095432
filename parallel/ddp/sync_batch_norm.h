// Batch normalisation with the statistics of all ranks' batches. Under data
// parallelism a BatchNorm layer uses its rank's share only, so results change
// with the number of ranks; with this layer they do not.
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

// Replaces every BatchNorm1d, 2d and 3d below `model` by a SyncBatchNorm that
// holds the layer's own tensors: parameters, buffers and names are unchanged,
// so optimizers and checkpoints remain valid. Returns the number of replaced
// layers; a layer that several modules share counts once.
// Replaces layers that are called through a Sequential, a ModuleList, a
// ModuleDict or their parent's named_children(). Returns FailedPrecondition for
// a layer that is also held elsewhere (a typed member, a function), which would
// continue to call it, and for a `model` that is itself such a layer; the model
// cannot be used afterwards.
absl::StatusOr<int64_t> ConvertToSyncBatchNorm(torch::nn::Module& model,
                                               const Group& group);

// torch.nn.SyncBatchNorm, for CPUs too.
class SyncBatchNormImpl : public torch::nn::Module {
 public:
  // Takes the options of `layer`, a BatchNorm of any dimension, and shares its
  // parameters and buffers under the same names, including undefined ones.
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

  // Maps [B, C, ...] to the same shape. In training, a collective of the group,
  // as is its backward (SyncBatchNormForward); B may differ between ranks and
  // be 0. A batch of fewer than two values per channel over all ranks leaves
  // the running statistics unchanged. In evaluation, and in a group of one
  // rank, equals BatchNorm, without communication. Throws c10::Error.
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

// Moments of the whole batch, the same on every rank. [C] each; fp64 if the
// input is, else fp32.
struct BatchMoments {
  at::Tensor mean;
  at::Tensor invstd;             // 1 / sqrt(biased variance + eps)
  at::Tensor unbiased_variance;  // 0 with one value per channel
  at::Tensor count;              // [1], fp64: values per channel
};

struct SyncedBatch {
  at::Tensor output;  // shape, dtype and memory format of x
  BatchMoments moments;
};

// Normalises x: [B, C, ...]; B may differ between ranks and be 0 on some.
// weight and bias are both [C] or both undefined.
// A collective of `group`: one all-reduce now and, if x requires a gradient,
// one of 2C values in the backward, so backwards must also run in the same
// order on all ranks. The gradients of weight and bias cover this rank's
// examples only, for data parallelism to average. Not twice differentiable.
// Runs plain tensor operations on any device without synchronising the host
// with it. Throws c10::Error.
SyncedBatch SyncBatchNormForward(const at::Tensor& x, const at::Tensor& weight,
                                 const at::Tensor& bias, double eps,
                                 const Group& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_H_

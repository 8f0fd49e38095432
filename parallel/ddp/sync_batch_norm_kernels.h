// The arithmetic of batch normalisation over a batch that is spread over ranks:
// once by plain tensor operations on any device, once by ATen's CUDA kernels.
#ifndef RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_KERNELS_H_
#define RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_KERNELS_H_

#include "ATen/core/Tensor.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d

namespace rankwise {

// Of the whole batch, the same on every rank. [C] each, of fp32, or of fp64
// where the input is.
struct BatchMoments {
  at::Tensor mean;
  at::Tensor invstd;             // 1 / sqrt(biased variance + eps)
  at::Tensor unbiased_variance;  // 0 where there is one value per channel
  at::Tensor counts;  // the values per channel are the sum of its elements
};

// This rank's part of the backward. The sums are [C], in the moments' dtype;
// the gradients [C], in the weight's.
struct BatchNormSums {
  at::Tensor dy;
  at::Tensor dy_xmu;  // of dy * (x - mean)
  at::Tensor weight_gradient, bias_gradient;
};

// x and dy are [B, C, ...] in one memory format, of floating point, and have at
// least one value; `weight` and `bias` are [C] or undefined. Nothing waits for
// the device. All throw c10::Error.
class BatchNormKernels {
 public:
  virtual ~BatchNormKernels() = default;

  // A collective of `group`, whose ranks may hold batches of different sizes:
  // here x may be empty.
  virtual BatchMoments Moments(const at::Tensor& x, double eps,
                               c10d::ProcessGroup& group) const = 0;
  // In x's dtype and memory format.
  virtual at::Tensor Normalize(const at::Tensor& x, const at::Tensor& weight,
                               const at::Tensor& bias,
                               const BatchMoments& moments,
                               double eps) const = 0;
  virtual BatchNormSums Sums(const at::Tensor& dy, const at::Tensor& x,
                             const at::Tensor& weight,
                             const BatchMoments& moments) const = 0;
  // The gradient of x, from sums over all ranks.
  virtual at::Tensor InputGradient(const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const BatchMoments& moments,
                                   const at::Tensor& sum_dy,
                                   const at::Tensor& sum_dy_xmu) const = 0;
};

// One all-reduce of raw moments in fp64, to which each rank adds what it
// computed about its own mean.
const BatchNormKernels& PlainBatchNormKernels();

// at::batch_norm_stats and its kin, with an all-gather of each rank's mean,
// inverse deviation and count: the kernels of PyTorch's SyncBatchNorm. ATen has
// them for CUDA only.
const BatchNormKernels& AtenBatchNormKernels();

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_KERNELS_H_

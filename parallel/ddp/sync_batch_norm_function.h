// Batch normalisation over the batches of all ranks, with its gradient.
#ifndef RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_
#define RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_

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
SyncedBatch SyncBatchNormForward(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_

// Batch normalisation over the batches of all ranks, with its gradient.
#ifndef RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_
#define RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_

#include "ATen/core/Tensor.h"
#include "c10/util/intrusive_ptr.h"
#include "parallel/ddp/sync_batch_norm_kernels.h"

namespace rankwise {

struct SyncedBatch {
  at::Tensor output;  // as x: shape, dtype, memory format
  BatchMoments moments;
};

// x: [B, C, ...]; B may differ between ranks and be 0 on some. weight and bias:
// both [C], or both undefined.
// A collective of `group`: one exchange now, and one all-reduce of 2C values in
// the backward if x needs a gradient, so backwards too run in the same order on
// all ranks. The gradients of weight and bias are those of this rank's
// examples, for data parallelism to average. Has no second derivative. Throws
// c10::Error.
SyncedBatch SyncBatchNormForward(
    const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
    double eps, const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const BatchNormKernels& kernels);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_SYNC_BATCH_NORM_FUNCTION_H_

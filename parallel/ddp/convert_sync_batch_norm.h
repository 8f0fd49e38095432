// A model's BatchNorm layers replaced by SyncBatchNorm.
#ifndef RANKWISE_PARALLEL_DDP_CONVERT_SYNC_BATCH_NORM_H_
#define RANKWISE_PARALLEL_DDP_CONVERT_SYNC_BATCH_NORM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "c10/util/intrusive_ptr.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d
namespace torch::nn {
class Module;
}

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
absl::StatusOr<int64_t> ConvertToSyncBatchNorm(
    torch::nn::Module& model,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_CONVERT_SYNC_BATCH_NORM_H_

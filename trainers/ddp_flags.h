// The flags that only the ddp trainer has.
#ifndef RANKWISE_TRAINERS_DDP_FLAGS_H_
#define RANKWISE_TRAINERS_DDP_FLAGS_H_

#include <torch/nn/module.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "parallel/comm/group.h"
#include "parallel/comm/hierarchical.h"
#include "parallel/ddp/gradient_sync.h"

namespace rankwise {

absl::Status CheckDdpFlags();

// Whether ranks receive rank 0's buffers before each forward.
bool BroadcastsBuffersByFlag();

// Under --sync_batch_norm replaces the model's BatchNorm layers, before an
// engine is made; returns a line to say about it, "" without the flag. With
// `skip_communication` they stay as they are.
absl::StatusOr<std::string> SyncBatchNormIfRequested(torch::nn::Module& model,
                                                     const Group& group,
                                                     bool skip_communication);

// `group` with the all-reduce that --all_reduce names. Collective over all
// ranks of the job.
absl::StatusOr<ChosenAllReduce> AllReduceFromFlags(const Group& group,
                                                   bool skip_communication);

// The engine that --ddp names, over the flags' buckets. Collective over the
// group.
absl::StatusOr<std::unique_ptr<DataParallelEngine>> MakeEngine(
    torch::nn::Module& model, const Group& group, bool skip_communication);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DDP_FLAGS_H_

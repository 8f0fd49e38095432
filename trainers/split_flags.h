// The flags of trainers that divide a model among ranks: of tensor parallelism
// and, of the trainer hybrid, of the whole mesh.
#ifndef RANKWISE_TRAINERS_SPLIT_FLAGS_H_
#define RANKWISE_TRAINERS_SPLIT_FLAGS_H_

#include "absl/status/status.h"
#include "trainers/models/division.h"
#include "trainers/stages/pipeline_plan.h"

namespace rankwise {

// --sequence_parallel and --tp_overlap, for `tensor` ranks along tp.
ModelSplit TensorSplitFromFlags(int tensor);

// Before any rank is started: InvalidArgument where the model cannot be divided
// so, or --tp_overlap is no number of pieces.
absl::Status CheckSplitOfModel(const ModelSplit& split);

// Of the trainer hybrid (hybrid_flags.cc).
ModelSplit HybridSplitFromFlags();
PipelineConfig HybridConfigFromFlags();
absl::Status CheckHybridFlags();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_SPLIT_FLAGS_H_

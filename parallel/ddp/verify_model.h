// Do all ranks have the same model? Asked before anything is exchanged, since
// afterwards the answer is a hang or silent nonsense.
#ifndef RANKWISE_PARALLEL_DDP_VERIFY_MODEL_H_
#define RANKWISE_PARALLEL_DDP_VERIFY_MODEL_H_

#include "absl/status/status.h"

namespace torch::nn {
class Module;
}

namespace rankwise {

class Communicator;

// FailedPrecondition, the same on every rank, names the first parameter or
// buffer whose name, shape, dtype, memory layout or need for a gradient is not
// rank 0's, or which one of the two lacks. A collective call: one exchange of
// 16 bytes when all is well.
absl::Status VerifyModel(const torch::nn::Module& module,
                         Communicator& communicator);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DDP_VERIFY_MODEL_H_

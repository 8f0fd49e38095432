// What the flags of all trainers that cut a model into stages share: --split,
// and the checks before any rank is started.
#ifndef RANKWISE_TRAINERS_STAGE_FLAGS_H_
#define RANKWISE_TRAINERS_STAGE_FLAGS_H_

#include <string>

#include "absl/status/status.h"

namespace rankwise {

std::string SplitFromFlags();

// InvalidArgument for --backend=fake, whose ranks hand no activations on.
absl::Status CheckBackendOfStages();

// InvalidArgument where --split does not cut --model into `stages`.
absl::Status CheckSplitFits(int stages);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_STAGE_FLAGS_H_

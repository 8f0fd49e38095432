// One linear layer, 10 -> 1: the smallest model that takes a DDP step.
#ifndef RANKWISE_TRAINERS_MODELS_LINEAR_H_
#define RANKWISE_TRAINERS_MODELS_LINEAR_H_

#include "trainers/models/model.h"

namespace rankwise {

// input [B, 10]; output [B, 1].
ModelSpec LinearSpec();

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_LINEAR_H_

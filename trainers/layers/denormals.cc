#include "trainers/layers/denormals.h"

#include <ATen/Context.h>

namespace rankwise {

// A CPU without support continues to compute with denormal numbers.
void FlushDenormals() { at::Context::setFlushDenormal(true); }

}  // namespace rankwise

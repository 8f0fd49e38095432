#include "trainers/layers/denormals.h"

#include <ATen/Context.h>

namespace rankwise {

// Where a CPU cannot, it computes with denormal numbers as before.
void FlushDenormals() { at::Context::setFlushDenormal(true); }

}  // namespace rankwise

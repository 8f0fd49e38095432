#include "samplers/sampling/epoch_guard.h"

#include <c10/util/Exception.h>

namespace rankwise {

void EpochGuard::EpochUsed() {
  if (epoch_used_ && !warned_) {
    warned_ = true;
    TORCH_WARN(sampler_,
               ": another shuffled epoch begins without set_epoch since the "
               "last one, so it has the same order again; call "
               "set_epoch(epoch) before every epoch");
  }
  epoch_used_ = true;
}

}  // namespace rankwise

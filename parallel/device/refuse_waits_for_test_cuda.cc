#include "c10/cuda/CUDAFunctions.h"
#include "parallel/device/refuse_waits_for_test.h"

namespace rankwise {

RefuseWaits::RefuseWaits() {
  c10::cuda::warning_state().set_sync_debug_mode(
      c10::cuda::SyncDebugMode::L_ERROR);
}

RefuseWaits::~RefuseWaits() {
  c10::cuda::warning_state().set_sync_debug_mode(
      c10::cuda::SyncDebugMode::L_DISABLED);
}

}  // namespace rankwise

#include "parallel/device/refuse_waits_for_test.h"

namespace rankwise {

RefuseWaits::RefuseWaits() = default;
RefuseWaits::~RefuseWaits() = default;

}  // namespace rankwise

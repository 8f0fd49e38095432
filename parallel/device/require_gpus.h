// For tests that need GPUs.
#ifndef RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_
#define RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_

#include <string>

namespace rankwise {

// Why a test that needs `gpus` of them cannot run here, "" if it can:
//   if (auto why = WhyNotOn(2); !why.empty()) GTEST_SKIP() << why;
std::string WhyNotOn(int gpus);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_DEVICE_REQUIRE_GPUS_H_

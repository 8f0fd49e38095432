// A GPU's measured limits are rates that a GPU can reach. If the measurement
// did not wait for the device, they would be far higher.
#include <c10/core/Device.h>
#include <gtest/gtest.h>

#include <string>

#include "parallel/device/require_gpus.h"
#include "trainers/peak/peak.h"

namespace rankwise {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);
// An H200's datasheet specifies 0.99e15 (bf16, dense) and 4.8e12.
constexpr double kMostFlopsPerSecond = 2e16, kMostBytesPerSecond = 1e14;

class PeakGpuTest : public testing::TestWithParam<const char*> {};

TEST_P(PeakGpuTest, IsPossible) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const DevicePeak peak =
      MeasurePeak({.device = kGpu, .precision = GetParam()}, EffortFor(kGpu))
          .peak;
  EXPECT_GT(peak.flops_per_second, 0);
  EXPECT_LT(peak.flops_per_second, kMostFlopsPerSecond);
  EXPECT_GT(peak.bytes_per_second, 0);
  EXPECT_LT(peak.bytes_per_second, kMostBytesPerSecond);
}

INSTANTIATE_TEST_SUITE_P(Precisions, PeakGpuTest,
                         testing::Values("fp32", "tf32", "bf16", "fp16"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace rankwise

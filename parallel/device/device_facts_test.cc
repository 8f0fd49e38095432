#include "parallel/device/device_facts.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

TEST(DeviceFactsTest, ABuildWithoutCudaSaysHowToGetOneWith) {
  if (ThisBuild().has_cuda) GTEST_SKIP() << "built with CUDA";
  EXPECT_EQ(VisibleGpus(), 0);
  EXPECT_THAT(WhyNoGpu(), HasSubstr("--config=cuda"));
  EXPECT_EQ(ThisBuild().cuda, "");
  EXPECT_EQ(ThisBuild().nccl, "");
}

TEST(DeviceFactsTest, ABuildWithCudaKnowsItsLibraries) {
  if (!ThisBuild().has_cuda) GTEST_SKIP() << "built without CUDA";
  EXPECT_THAT(ThisBuild().cuda, testing::MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_THAT(ThisBuild().nccl,
              testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
}

TEST(DeviceFactsTest, SaysWhyThereIsNoGpu) {
  if (VisibleGpus() > 0) GTEST_SKIP() << "there is one";
  ASSERT_NE(WhyNoGpu(), "");
  const absl::Status refused = DescribeGpu(0).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(refused.message()), WhyNoGpu());
  EXPECT_EQ(WhyTooFewGpus(1), "needs a GPU: " + WhyNoGpu());
}

TEST(DeviceFactsTest, NobodyNeedsMoreThanThereAre) {
  EXPECT_EQ(WhyTooFewGpus(VisibleGpus()), "");
  EXPECT_NE(WhyTooFewGpus(VisibleGpus() + 1), "");
}

}  // namespace
}  // namespace rankwise

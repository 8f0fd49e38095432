#include <set>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/device/device_facts.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

TEST(DeviceFactsGpuTest, DescribesEveryVisibleGpu) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  EXPECT_EQ(WhyNoGpu(), "");
  std::set<std::string> uuids;
  for (int i = 0; i < VisibleGpus(); ++i) {
    const auto facts = DescribeGpu(i);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_NE(facts->name, "");
    EXPECT_THAT(facts->uuid, testing::MatchesRegex(
                                 "GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-"
                                 "[0-9a-f]+"));
    EXPECT_THAT(facts->pci_bus_id, HasSubstr(":"));
    EXPECT_GE(facts->major, 5);
    EXPECT_GT(facts->multiprocessors, 0);
    EXPECT_GT(facts->memory_bytes, int64_t{1} << 30);
    EXPECT_GT(facts->l2_bytes, 0);
    EXPECT_GE(facts->memory_bytes_per_second, 0) << "0 if not reported";
    uuids.insert(facts->uuid);
  }
  EXPECT_EQ(static_cast<int>(uuids.size()), VisibleGpus());
}

TEST(DeviceFactsGpuTest, SaysHowManyThereAre) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const absl::Status beyond = DescribeGpu(VisibleGpus()).status();
  EXPECT_EQ(beyond.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(beyond.message()),
              HasSubstr("this process sees " + std::to_string(VisibleGpus())));
  EXPECT_EQ(DescribeGpu(-1).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace rankwise

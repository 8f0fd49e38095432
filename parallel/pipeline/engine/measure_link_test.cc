#include "parallel/pipeline/engine/measure_link.h"

#include <vector>

#include "gtest/gtest.h"
#include "parallel/pipeline/engine/test_pipeline.h"

namespace rankwise {
namespace {

TEST(MeasureLinkTest, TheFitGoesThroughBothPoints) {
  const LinkCosts link = FitLink(4, 10e-6, 1004, 30e-6);
  EXPECT_DOUBLE_EQ(link.beta_seconds_per_byte, 20e-9);
  EXPECT_DOUBLE_EQ(link.alpha_seconds, 10e-6 - 4 * 20e-9);
}

TEST(MeasureLinkTest, NoiseDoesNotMakeCostsNegative) {
  const LinkCosts link = FitLink(4, 30e-6, 1004, 10e-6);
  EXPECT_EQ(link.beta_seconds_per_byte, 0);
  EXPECT_DOUBLE_EQ(link.alpha_seconds, 30e-6);
  EXPECT_EQ(FitLink(4, 1e-6, 4, 2e-6).beta_seconds_per_byte, 0);
}

TEST(MeasureLinkTest, AllRanksGetTheSameCosts) {
  for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    std::vector<LinkCosts> links(num_ranks);
    OnRanks(num_ranks, [&](const Group& group, int rank) {
      links[rank] = MeasureLink(group, c10::kCPU, 1 << 20);
    });
    for (const LinkCosts& link : links) {
      EXPECT_EQ(link.alpha_seconds, links[0].alpha_seconds);
      EXPECT_EQ(link.beta_seconds_per_byte, links[0].beta_seconds_per_byte);
      EXPECT_EQ(link.alpha_seconds > 0, num_ranks > 1);
    }
  }
}

}  // namespace
}  // namespace rankwise

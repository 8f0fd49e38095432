#include "analysis/cost_model/growth.h"

#include <gtest/gtest.h>

#include <vector>

#include "analysis/cost_model/cost_curve.h"

namespace rankwise {
namespace {

CostCurve CurveAt(Growth growth, int64_t ranks) {
  CostCurve curve;
  curve.world_size = ranks;
  CostSegment segment;
  segment.alpha_seconds = 1e-4 * AlphaGrowth(growth, ranks);
  segment.beta_seconds_per_byte = 1e-9 * BetaGrowth(growth, ranks);
  curve.segments = {segment};
  for (double bytes = 8; bytes < 1e8; bytes *= 8) {
    curve.points.push_back({bytes, curve.SecondsFor(bytes), {}});
  }
  return curve;
}

TEST(Growth, IsThatOfTheAlgorithms) {
  EXPECT_EQ(AlphaGrowth(Growth::kFlat, 8), 1);
  EXPECT_EQ(AlphaGrowth(Growth::kTree, 8), 3);
  EXPECT_EQ(AlphaGrowth(Growth::kTree, 5), 3);
  EXPECT_EQ(AlphaGrowth(Growth::kRing, 8), 7);
  EXPECT_EQ(BetaGrowth(Growth::kFlat, 8), 1);
  EXPECT_EQ(BetaGrowth(Growth::kTree, 8), 1);
  EXPECT_EQ(BetaGrowth(Growth::kRing, 8), 7.0 / 8);
}

TEST(Growth, NamesAndBack) {
  for (const Growth growth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    EXPECT_EQ(GrowthFromName(GrowthName(growth)), growth);
  }
  EXPECT_FALSE(GrowthFromName("star").has_value());
}

TEST(AssumedGrowth, FollowsCollectiveAndBackend) {
  EXPECT_EQ(AssumedGrowth("all_reduce", "gloo"), Growth::kRing);
  EXPECT_EQ(AssumedGrowth("broadcast", "nccl"), Growth::kTree);
  EXPECT_EQ(AssumedGrowth("barrier", "gloo"), Growth::kTree);
  EXPECT_EQ(AssumedGrowth("ping_pong", "gloo"), Growth::kFlat);
  EXPECT_EQ(AssumedGrowth("all_reduce", "fake"), Growth::kFlat);
}

TEST(FitGrowth, FindsTheGrowthWhateverIsAssumed) {
  for (const Growth truth : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
    for (const Growth assumed : {Growth::kFlat, Growth::kTree, Growth::kRing}) {
      EXPECT_EQ(FitGrowth({CurveAt(truth, 2), CurveAt(truth, 4)}, assumed),
                truth);
      EXPECT_EQ(
          FitGrowth({CurveAt(truth, 2), CurveAt(truth, 3), CurveAt(truth, 8)},
                    assumed),
          truth);
    }
  }
}

}  // namespace
}  // namespace rankwise

#include "trainers/stages/pipeline_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankwise {
namespace {

using ::testing::HasSubstr;

ModelSpec SimpleCnn() { return *MakeModelSpec({.name = "simple_cnn"}); }

std::vector<size_t> Begins(const std::vector<LayerRange>& ranges) {
  std::vector<size_t> begins;
  for (const LayerRange& range : ranges) begins.push_back(range.begin);
  return begins;
}

std::string Refusal(const std::string& split, int stages) {
  return std::string(
      SplitByFacts(SimpleCnn(), split, stages).status().message());
}

TEST(PipelinePlanTest, EachMeasureBalancesItsOwn) {
  // conv1, conv2, fc1, fc2: most parameters are in fc1, most FLOPs in conv2.
  EXPECT_EQ(Begins(*SplitByFacts(SimpleCnn(), "layers", 2)),
            (std::vector<size_t>{0, 2}));
  EXPECT_EQ(Begins(*SplitByFacts(SimpleCnn(), "parameters", 3)),
            (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(Begins(*SplitByFacts(SimpleCnn(), "flops", 3)),
            (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(Begins(*SplitByFacts(SimpleCnn(), "1,3", 3)),
            (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(Begins(*SplitByCosts({1, 1, 1, 3}, 2)),
            (std::vector<size_t>{0, 3}));
}

TEST(PipelinePlanTest, StagesCoverTheModelOnce) {
  for (int stages = 1; stages <= 4; ++stages) {
    const std::vector<LayerRange> ranges =
        *SplitByFacts(SimpleCnn(), "flops", stages);
    ASSERT_EQ(ranges.size(), static_cast<size_t>(stages));
    size_t next = 0;
    for (const LayerRange& range : ranges) {
      EXPECT_EQ(range.begin, next);
      EXPECT_LT(range.begin, range.end);
      next = range.end;
    }
    EXPECT_EQ(next, 4u);
  }
}

TEST(PipelinePlanTest, RefusalsNameTheFlag) {
  EXPECT_THAT(Refusal("flops", 5),
              HasSubstr("--split=flops: 5 stages of a model with 4 layers"));
  EXPECT_THAT(Refusal("1,9", 3), HasSubstr("--split=1,9: the cut 9"));
  EXPECT_THAT(Refusal("2", 3), HasSubstr("--split=2: '2' makes 2 stages"));
  EXPECT_THAT(Refusal("evenly", 2),
              HasSubstr("--split=evenly: must be layers, parameters, flops"));
}

// pp changes slowest, so that a stage's replicas are neighbours.
TEST(PipelinePlanTest, ReplicasOfAStageTakeConsecutiveRanks) {
  const MeshLayout layout = *LayOutRanks(PipelineAxes({.replicas = 2}, 6), 6);
  EXPECT_EQ(layout.size("pp"), 3);
  EXPECT_EQ(layout.Line("pp", 4), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(layout.Line("dp", 4), (std::vector<int>{4, 5}));
  EXPECT_THAT(
      std::string(
          LayOutRanks(PipelineAxes({.replicas = 2}, 5), 5).status().message()),
      HasSubstr("--pp=2 --dp=2 are 4 ranks, but the job has 5"));
}

}  // namespace
}  // namespace rankwise

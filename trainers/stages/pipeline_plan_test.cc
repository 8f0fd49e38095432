#include "trainers/stages/pipeline_plan.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec SimpleCnn() { return *MakeModelSpec({.name = "simple_cnn"}); }

std::vector<size_t> Begins(const std::vector<LayerRange>& ranges) {
  std::vector<size_t> begins;
  for (const LayerRange& range : ranges) begins.push_back(range.begin);
  return begins;
}

std::string Refusal(const std::string& split, int stages) {
  return std::string(SplitModel(SimpleCnn(), split, stages).status().message());
}

TEST(PipelinePlanTest, EachMeasureBalancesItsOwn) {
  // conv1, conv2, fc1, fc2: most parameters are in fc1, most FLOPs in conv2.
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "layers", 2)),
            (std::vector<size_t>{0, 2}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "parameters", 3)),
            (std::vector<size_t>{0, 2, 3}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "flops", 3)),
            (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "1,3", 3)),
            (std::vector<size_t>{0, 1, 3}));
  EXPECT_EQ(Begins(*SplitModel(SimpleCnn(), "time", 2, {1, 1, 1, 3})),
            (std::vector<size_t>{0, 3}));
}

TEST(PipelinePlanTest, StagesCoverTheModelOnce) {
  for (int stages = 1; stages <= 4; ++stages) {
    const std::vector<LayerRange> ranges =
        *SplitModel(SimpleCnn(), "flops", stages);
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

TEST(ProfileTest, MeasuresEveryLayer) {
  const ModelSpec spec = *MakeModelSpec({.name = "mp_mlp"});
  Model model(spec);
  const auto profile = ProfileLayers(model, at::randn({64, 1024}), 3);
  ASSERT_EQ(profile.size(), 3u);
  for (const LayerProfile& layer : profile) {
    EXPECT_GT(layer.forward_seconds, 0);
    EXPECT_GT(layer.backward_seconds, 0);
  }
  for (const torch::Tensor& parameter : model.parameters())
    EXPECT_FALSE(parameter.grad().defined());
}

TEST(ProfileTest, RefusesToRunNothing) {
  Model model(*MakeModelSpec({.name = "mp_mlp"}));
  EXPECT_THROW(ProfileLayers(model, at::randn({4, 1024}), 0), c10::Error);
}

TEST(ProfileTest, TokensHaveNoGradient) {
  ModelConfig config;
  config.name = "gpt";
  config.depth = 1;
  config.width = 32;
  config.sequence_length = 8;
  Model model(*MakeModelSpec(config));
  const auto profile =
      ProfileLayers(model, at::randint(0, 256, {2, 8}, at::kLong), 1);
  EXPECT_EQ(profile.size(), 4u);
}

TEST(StageTableTest, SumsTheLayersOfEachStage) {
  const ModelSpec spec = *MakeModelSpec({.name = "simple_cnn"});
  const std::vector<LayerRange> stages = {{0, 2}, {2, 4}};
  EXPECT_EQ(StageTable(spec, stages, 8),
            "stage  layers                   parameters   output_bytes "
            "forward_flops\n"
            "    0  conv1 .. conv2                19392         131072     "
            "8.965e+07\n"
            "    1  fc1 .. fc2                  2102794            320     "
            "3.364e+07");
  EXPECT_THAT(StageTable(spec, stages, 8), Not(HasSubstr("backward_ms")));
}

TEST(StageTableTest, AddsMeasuredTimes) {
  const ModelSpec spec = *MakeModelSpec({.name = "mp_mlp"});
  const std::vector<LayerProfile> profile = {
      {0.001, 0.002}, {0.0005, 0.0001}, {0.004, 0.005}};
  const std::string table = StageTable(spec, {{0, 2}, {2, 3}}, 1, profile);
  EXPECT_THAT(table, HasSubstr(" 1.500       2.100\n"));
  EXPECT_THAT(table, HasSubstr(" 4.000       5.000"));
  EXPECT_THAT(table, HasSubstr("fc1 .. relu"));
}

}  // namespace
}  // namespace rankwise

#include "trainers/models/profile.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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

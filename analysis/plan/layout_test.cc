#include "analysis/plan/layout.h"

#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

TEST(ModelTest, CountsParametersAndFlops) {
  const Model nano = *NamedModel("nano");
  // As printed by //trainers:single for gpt nano.
  EXPECT_EQ(nano.Parameters(), 842496);
  const Model large = *NamedModel("gpt3-175b");
  EXPECT_NEAR(large.Parameters(), 174.6e9, 0.3e9);
  // Narayanan et al. 2021, equation 3, without recomputation: forward of an
  // example takes 24 s l h^2 (1 + s / (6 h) + V / (12 l h)).
  const double s = 2048, l = 96, h = 12288, v = 51200;
  EXPECT_NEAR(large.ForwardFlops() /
                  (24 * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h))),
              1, 1e-12);
}

TEST(ModelTest, NamesWhatIsNotPossible) {
  EXPECT_THAT(
      std::string(CheckModel({"m", 2, 100, 3, 8, 8}).message()),
      ::testing::HasSubstr("--width=100: must be a multiple of --heads=3"));
  EXPECT_THAT(std::string(CheckModel({"m", 0, 4, 1, 8, 8}).message()),
              ::testing::HasSubstr("--layers=0"));
  EXPECT_THAT(std::string(NamedModel("gpt5").status().message()),
              ::testing::HasSubstr("gpt3-175b"));
}

TEST(LayoutTest, IsNamedAndRun) {
  Layout layout{.pp = 2,
                .dp = 3,
                .tp = 4,
                .zero = 1,
                .schedule = "interleaved_1f1b",
                .chunks = 2,
                .micro_batch = 4,
                .micro_batches = 8,
                .recompute = Recompute::kFull};
  layout.sequence_parallel = true;
  EXPECT_EQ(layout.MeshName(), "pp 2 x dp 3 x tp 4");
  EXPECT_EQ(layout.Details(),
            "interleaved_1f1b x2, 8 x 4, ZeRO 1, sequence parallel, recompute");
  EXPECT_EQ(layout.global_batch(), 96);
  EXPECT_EQ(CommandOf(*NamedModel("nano"), layout, "bf16"),
            "//trainers:hybrid -- --nproc=24 --pp=2 --cp=1 --tp=4 "
            "--schedule=interleaved_1f1b --chunks=2 --sequence_parallel "
            "--zero=1 --recompute --microbatches=8 --batch_size=4 "
            "--precision=bf16 --model=gpt --model_size=nano");
  EXPECT_EQ(CommandOf(*NamedModel("gpt3-175b"), {.dp = 2}, "fp32"),
            "//trainers:ddp -- --nproc=2 --batch_size=1 --precision=fp32");
  EXPECT_EQ(Layout().MeshName(), "1 rank");
}

int64_t BlocksOf(const std::vector<Stage>& cut) {
  int64_t blocks = 0;
  for (const Stage& stage : cut) blocks += stage.blocks;
  return blocks;
}

TEST(CutModelTest, StagesHaveEqualFlopsOrEqualBlocks) {
  // The head has as many FLOPs as 2.6 blocks.
  const Model model{"m", 10, 256, 4, 64, 8192};
  const auto balanced = *CutModel(model, 4, /*equal_blocks=*/false);
  const auto equal = *CutModel(model, 4, /*equal_blocks=*/true);
  for (const auto& cut : {balanced, equal}) {
    ASSERT_EQ(cut.size(), 4u);
    EXPECT_EQ(BlocksOf(cut), 10);
    EXPECT_TRUE(cut.front().embedding);
    EXPECT_TRUE(cut.back().head);
    EXPECT_FALSE(cut[1].embedding || cut[1].norm || cut[1].head);
  }
  EXPECT_EQ(equal.back().blocks, 2);
  EXPECT_LT(balanced.back().blocks, 2);
  EXPECT_FALSE(CutModel(model, 14, false).ok());
}

}  // namespace
}  // namespace rankwise::plan

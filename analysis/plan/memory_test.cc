#include "analysis/plan/memory.h"

#include <algorithm>
#include <string>
#include <vector>

#include "analysis/plan/cluster.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise::plan {
namespace {

using ::testing::DoubleNear;

// Rajbhandari et al. 2020, table 1: GB per device of 64, with 2 bytes per
// parameter, 2 per gradient and 12 of Adam's state.
TEST(StateMemoryTest, IsThatOfZerosTable1) {
  Engine engine;
  engine.parameter_bytes = engine.gradient_bytes = 2;
  engine.optimizer_bytes = 12;
  const struct {
    int64_t parameters;
    double gigabytes[4];  // by ZeRO stage
  } rows[] = {{7'500'000'000, {120, 31.4, 16.6, 1.88}},
              {128'000'000'000, {2048, 536, 284, 32}},
              {1'000'000'000'000, {16000, 4187, 2218, 250}}};
  for (const auto& row : rows) {
    for (int stage = 0; stage <= 3; ++stage) {
      const Layout layout{.dp = 64, .zero = stage};
      const double bytes =
          StateMemory({row.parameters, row.parameters}, layout, engine).state();
      EXPECT_NEAR(1e-9 * bytes / row.gigabytes[stage], 1, 0.003)
          << row.parameters << " stage " << stage;
    }
  }
}

// Korthikanti et al. 2022, table 2: bytes of a block's activations over s b h,
// here with t = 8 and a s / h = 64 * 2048 / 6144.
TEST(BlockKeptBytesTest, IsThatOfKorthikantisTable2) {
  const Model model = *NamedModel("megatron-22b");
  const double sbh = 2048.0 * 4 * 6144;
  const double attention = 5 * 64 * 2048.0 / 6144;
  const struct {
    int64_t tp;
    bool sequence;
    Recompute recompute;
    double expected;
  } rows[] = {{1, false, Recompute::kNone, 34 + attention},
              {8, false, Recompute::kNone, 10 + 24.0 / 8 + attention / 8},
              {8, true, Recompute::kNone, (34 + attention) / 8},
              {8, false, Recompute::kAttention, 10 + 24.0 / 8},
              {8, true, Recompute::kAttention, 34.0 / 8}};
  for (const auto& row : rows) {
    Layout layout{.tp = row.tp, .micro_batch = 4, .recompute = row.recompute};
    layout.sequence_parallel = row.sequence;
    EXPECT_NEAR(BlockKeptBytes(model, layout, Megatron2022()) / sbh,
                row.expected, 1e-9);
  }
}

std::vector<Memory> MemoryOf(const Model& model, const Layout& layout,
                             const std::string& precision = "fp32") {
  const Engine engine = *OwnEngine(precision, /*on_cpu=*/true);
  const Cluster cluster = *NamedCluster("a100-selene");
  const auto cut = *CutModel(model, layout.stages(), engine.equal_blocks);
  const auto schedule = *AddCommunication(*MakeSchedule(
      layout.schedule,
      {static_cast<int>(layout.pp), static_cast<int>(layout.micro_batches),
       static_cast<int>(layout.chunks)}));
  return RankMemory(model, layout, engine,
                    WorkOf(model, layout, engine, cluster, CostSide::kMiddle),
                    cut, schedule);
}

struct TrainerCase {
  Layout layout;
  std::string precision;
  std::vector<double> megabytes;  // of each rank along pp
};

// Activations of gpt nano, as computed by the trainers in the table of
// docs/memory.md.
TEST(RankMemoryTest, ActivationsAreThoseOfTheTrainers) {
  const Model nano = *NamedModel("nano");
  const Layout pipeline{.pp = 2, .micro_batch = 8, .micro_batches = 4};
  const auto with = [&](const std::string& schedule, Recompute recompute) {
    Layout layout = pipeline;
    layout.schedule = schedule;
    layout.recompute = recompute;
    return layout;
  };
  const Layout tp{.tp = 2, .micro_batch = 8};
  Layout sequence = tp;
  sequence.sequence_parallel = true;
  Layout both = sequence;
  both.pp = 2;
  both.micro_batches = 4;
  const TrainerCase cases[] = {
      {{.micro_batch = 8}, "fp32", {35.8}},
      {{.micro_batch = 8}, "bf16", {22.5}},
      {{.dp = 2, .zero = 3, .micro_batch = 8}, "bf16", {18.5}},
      {tp, "fp32", {22.7}},
      {sequence, "fp32", {17.9}},
      {sequence, "bf16", {11.2}},
      {{.cp = 2, .micro_batch = 8}, "fp32", {17.9}},
      {pipeline, "fp32", {35.8, 20.0}},
      {with("gpipe", Recompute::kNone), "fp32", {71.6, 75.8}},
      {with("1f1b", Recompute::kFull), "fp32", {18.9, 20.0}},
      {with("zero_bubble_h1", Recompute::kNone), "fp32", {35.8, 43.7}},
      {both, "fp32", {17.9, 10.0}}};
  for (const TrainerCase& one : cases) {
    const auto ranks = MemoryOf(nano, one.layout, one.precision);
    ASSERT_EQ(ranks.size(), one.megabytes.size());
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_NEAR(1e-6 * ranks[rank].activations, one.megabytes[rank], 0.051)
          << one.layout.FullName() << ", " << one.precision << ", rank "
          << rank;
    }
  }
}

// Inputs of blocks, norm and head, 4.2 MB by docs/memory.md, and in backward
// the activations of one block, without its input and the head's.
TEST(RankMemoryTest, RecomputesBlocksOneByOne) {
  const Model nano = *NamedModel("nano");
  const Layout layout{
      .dp = 2, .zero = 3, .micro_batch = 8, .recompute = Recompute::kFull};
  const double block = BlockKeptBytes(nano, layout, *OwnEngine("fp32"));
  const double input = 8 * 128 * 128 * 4, head = input + 8 * 128 * 256 * 4;
  const auto ranks = MemoryOf(nano, layout);
  EXPECT_NEAR(1e-6 * ranks[0].activations,
              4.2 + 1e-6 * (block - 2 * input - head), 0.051);
}

// docs/memory.md: kB of parameters, gradients and optimizer state of
// //trainers:fsdp, without Adam's 4-byte counters per tensor.
TEST(RankMemoryTest, StateIsThatOfTheTrainers) {
  const Model model{"two", 2, 64, 2, 32, 256};
  const double kilobytes[][3] = {
      {1422.4, 1185.4, 1066.9}, {1185.4, 829.8, 652.0}, {948.3, 474.2, 237.2}};
  const int64_t ranks[] = {2, 4, 8};
  for (int stage = 1; stage <= 3; ++stage) {
    for (size_t i = 0; i < std::size(ranks); ++i) {
      const auto memory = MemoryOf(model, {.dp = ranks[i], .zero = stage});
      EXPECT_NEAR(1e-3 * memory[0].state(), kilobytes[stage - 1][i], 0.3);
    }
  }
}

TEST(LeastMemoryTest, IsNeverMoreThanARankTakes) {
  const Model nano = *NamedModel("nano");
  const Engine engine = *OwnEngine("fp32");
  const Cluster cluster = *NamedCluster("a100-selene");
  for (const char* schedule : {"1f1b", "gpipe", "zbv", "zero_bubble_h1"}) {
    for (const int zero : {0, 1, 2}) {
      Layout layout{.pp = 2, .dp = 2, .zero = zero, .schedule = schedule};
      layout.chunks = layout.schedule == "zbv" ? 2 : 1;
      layout.micro_batches = 6;
      double most = 0;
      for (const Memory& rank : MemoryOf(nano, layout))
        most = std::max(most, rank.sum());
      const auto work =
          WorkOf(nano, layout, engine, cluster, CostSide::kMiddle);
      const auto cut = *CutModel(nano, layout.stages(), false);
      const double least = LeastMemory(nano, layout, engine, work, cut);
      EXPECT_LE(least, most) << schedule << " " << zero;
      EXPECT_GT(least, 0.2 * most);
    }
  }
}

}  // namespace
}  // namespace rankwise::plan

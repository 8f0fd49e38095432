#include "analysis/plan/units.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

std::vector<Section> Chain(size_t length) {
  std::vector<Section> sections(length, {.forward = 1, .backward = 2});
  for (size_t i = 0; i < length; ++i) sections[i].units = {i};
  return sections;
}

TEST(TimedUnitsTest, OnlyTheFirstGatherAndTheLastReductionAreExposed) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}), {.zero = 3},
                 /*speed_during_communication=*/1);
  run.Forward();
  EXPECT_DOUBLE_EQ(run.exposed(), 0.5);
  EXPECT_DOUBLE_EQ(run.now(), 3.5);
  // The last unit stayed; the others come while the one after computes.
  run.Backward(/*reduces=*/true);
  EXPECT_DOUBLE_EQ(run.now(), 10);
  EXPECT_DOUBLE_EQ(run.exposed(), 1);
}

TEST(TimedUnitsTest, InAPipelineBackwardBeginsWithAGather) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}),
                 {.zero = 3, .micro_batches_take_turns = true},
                 /*speed_during_communication=*/1);
  run.Forward();
  run.StageBackward(run.All());
  EXPECT_DOUBLE_EQ(run.exposed(), 1);
}

TEST(TimedUnitsTest, WithNoSpareCoreEveryCallIsExposed) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}), {.zero = 1},
                 /*speed_during_communication=*/0);
  run.Forward();
  run.Backward(/*reduces=*/true);
  EXPECT_DOUBLE_EQ(run.now(), 9 + 6 * 0.5);
}

TEST(TimedUnitsTest, ASlowLinkSetsThePace) {
  TimedUnits run(Chain(2), std::vector<UnitSeconds>(2, {5, 0}), {.zero = 3},
                 /*speed_during_communication=*/1);
  run.Forward();
  EXPECT_DOUBLE_EQ(run.now(), 11);
  run.Backward(/*reduces=*/false);
  EXPECT_DOUBLE_EQ(run.now(), 11 + 5 + 2);
}

UnitMemory FourUnits(const UnitOrderConfig& order) {
  return UnitMemory({std::vector<double>(4, 100), Chain(4), {}}, order,
                    {.zero = order.zero, .ranks = 8, .parameter_bytes = 4});
}

int64_t PeakOf(const UnitOrderConfig& order) {
  UnitMemory memory = FourUnits(order);
  memory.Forward();
  memory.Backward(/*reduces=*/true);
  return memory.peak();
}

TEST(UnitMemoryTest, Zero3HoldsOneUnitTheNextMessageAndTwoReductions) {
  // The gathered unit and its gradients, the message of the next, the inputs of
  // two reduce-scatters in flight.
  EXPECT_EQ(PeakOf({.zero = 3}), 400 * (2 + 1 + 2));
  // Without the units and the gradients, which all stay.
  EXPECT_EQ(PeakOf({.zero = 1}), 400 * 2);
}

TEST(UnitMemoryTest, AStageReducesItsGradientsWhenItHasThoseOfAllMicroBatches) {
  const SectionRange first = {0, 2}, second = {2, 4};
  UnitMemory memory = FourUnits({.zero = 2, .micro_batches_take_turns = true});
  memory.StageForward(first);
  memory.StageForward(second);
  memory.StageBackward(second);
  memory.CompleteStep(second);
  EXPECT_EQ(memory.peak(), 400 * (2 + 1)) << "before the first has gradients";
  memory.StageBackward(first);
  memory.CompleteStep(first);
  memory.EndStep();
  EXPECT_EQ(memory.peak(), 400 * (2 + 2)) << "two are still in flight";
}

TEST(UnitMemoryTest, AUnitThatIsTiedOnItsRankIsReducedLast) {
  std::vector<Section> sections = Chain(3);
  sections[2].units = {0};
  // The first unit is large: CompleteStep would have to hold 4 * 1000 bytes
  // more if it reduced that.
  UnitMemory memory({{1000, 100}, sections, {}},
                    {.zero = 2, .micro_batches_take_turns = true},
                    {.zero = 2, .ranks = 8, .parameter_bytes = 4});
  memory.StageForward(memory.All());
  memory.StageBackward(memory.All());
  EXPECT_EQ(memory.peak(), 4 * 1100);
  memory.CompleteStep(memory.All());
  EXPECT_EQ(memory.peak(), 4 * 1200);
  memory.EndStep();
  EXPECT_EQ(memory.peak(), 4 * (1000 + 1000 + 100)) << "one is in flight";
}

class UnitSectionsTest : public ::testing::Test {
 protected:
  UnitSectionsTest() {
    work_.embedding.parameters = (100 + 32) * 64;
    work_.block.parameters = model_.BlockParameters();
    work_.norm.parameters = 2 * 64;
  }
  UnitSections SectionsOf(const Layout& layout,
                          const std::vector<Stage>& stages) const {
    return UnitSectionsOf(model_, layout, *OwnEngine("fp32"), stages, work_);
  }

  const Model model_ = {"even", 2, 64, 4, 32, 100, /*tied_head=*/true};
  const Stage first_ = {true, false, false, 1}, last_ = {false, true, true, 1};
  LayerWork work_;
};

TEST_F(UnitSectionsTest, ATiedHeadUsesTheEmbeddingsUnit) {
  const UnitSections whole = SectionsOf({}, {{true, true, true, 2}});
  EXPECT_THAT(whole.parameters,
              testing::ElementsAre(132 * 64, model_.BlockParameters(),
                                   model_.BlockParameters(), 128));
  ASSERT_EQ(whole.sections.size(), 5);
  EXPECT_THAT(whole.sections.back().units, testing::ElementsAre(0));
}

TEST_F(UnitSectionsTest, OfAnotherRanksEmbeddingItHasACopy) {
  EXPECT_THAT(SectionsOf({.pp = 2}, {last_}).parameters,
              testing::ElementsAre(model_.BlockParameters(), 128, 100 * 64));
}

TEST_F(UnitSectionsTest, OfZbvsFirstRankItHasNone) {
  const Layout zbv{.pp = 2, .schedule = "zbv", .chunks = 2};
  EXPECT_THAT(SectionsOf(zbv, {last_}).parameters,
              testing::ElementsAre(model_.BlockParameters(), 128));
  const UnitSections both = SectionsOf(zbv, {first_, last_});
  ASSERT_EQ(both.stages.size(), 2);
  EXPECT_EQ(both.stages[1].begin, 2);
  EXPECT_THAT(both.sections.back().units, testing::ElementsAre(0));
}

}  // namespace
}  // namespace rankwise::plan

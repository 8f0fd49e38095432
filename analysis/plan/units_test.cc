#include "analysis/plan/units.h"

#include <numeric>
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
  run.Backward(run.All());
  EXPECT_DOUBLE_EQ(run.exposed(), 1);
}

TEST(TimedUnitsTest, WithoutASecondCoreEachCallTakesItsTime) {
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

TEST(LinkRunTest, ComputingIsSlowerWhileACallIsInFlight) {
  LinkRun run(/*speed_during_communication=*/0.25);
  EXPECT_DOUBLE_EQ(run.Start(4), 4);
  run.Compute(0.5);
  EXPECT_DOUBLE_EQ(run.now(), 2);
  // Half of it in the 2 s that are left.
  run.Compute(1);
  EXPECT_DOUBLE_EQ(run.now(), 4.5);
  EXPECT_DOUBLE_EQ(run.exposed(), 3);
  EXPECT_DOUBLE_EQ(run.Start(1), 5.5);
  EXPECT_DOUBLE_EQ(run.Start(1), 6.5);
  run.WaitForAll();
  EXPECT_DOUBLE_EQ(run.exposed(), 5);
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

TEST(UnitMemoryTest, ZeRO3HasTwoUnitsAndTheirGradientsAtATime) {
  // The gathered unit and its gradients, the message of the next, the inputs of
  // two reduce-scatters in flight.
  EXPECT_EQ(PeakOf({.zero = 3}), 400 * (2 + 1 + 2));
  // Without the units and the gradients, which all stay.
  EXPECT_EQ(PeakOf({.zero = 1}), 400 * 2);
}

TEST(UnitMemoryTest, AStageReducesItsGradientsWhenItHasThoseOfAllMicroBatches) {
  const SectionRange first = {0, 2}, second = {2, 4};
  UnitMemory memory = FourUnits({.zero = 2, .micro_batches_take_turns = true});
  memory.Forward(first);
  memory.Forward(second);
  memory.Backward(second);
  memory.CompleteStep(second);
  EXPECT_EQ(memory.peak(), 400 * (2 + 1)) << "before the first has gradients";
  memory.Backward(first);
  memory.CompleteStep(first);
  memory.EndStep();
  EXPECT_EQ(memory.peak(), 400 * (2 + 2 + 0)) << "two are still in flight";
}

TEST(UnitSectionsTest, ATiedHeadUsesTheEmbeddingsUnitOrHasACopy) {
  const Model model{"even", 2, 64, 4, 32, 100, /*tied_head=*/true};
  const Layout layout;
  LayerWork work;
  work.embedding.parameters = (100 + 32) * 64;
  work.block.parameters = model.BlockParameters();
  work.norm.parameters = 2 * 64;
  const UnitSections whole =
      UnitSectionsOf(model, layout, {{true, true, true, 2}}, work);
  EXPECT_THAT(whole.parameters,
              testing::ElementsAre(132 * 64, model.BlockParameters(),
                                   model.BlockParameters(), 128));
  ASSERT_EQ(whole.sections.size(), 5);
  EXPECT_THAT(whole.sections.back().units, testing::ElementsAre(0));
  const UnitSections last =
      UnitSectionsOf(model, layout, {{false, true, true, 1}}, work);
  EXPECT_THAT(last.parameters,
              testing::ElementsAre(model.BlockParameters(), 128, 100 * 64));
}

TEST(ModelTest, ABlocksTensorsAreItsParameters) {
  const Model model{"even", 2, 64, 4, 32, 100};
  const std::vector<double> tensors = model.BlockTensors();
  EXPECT_EQ(std::accumulate(tensors.begin(), tensors.end(), 0.0),
            model.BlockParameters());
}

}  // namespace
}  // namespace rankwise::plan

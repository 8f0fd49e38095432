#include "analysis/plan/units.h"

#include <vector>

#include "analysis/plan/link_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

using ::testing::ElementsAre;

UnitSections Chain(size_t length) {
  UnitSections chain;
  for (size_t i = 0; i < length; ++i) {
    chain.seconds.push_back({.forward = 1, .backward = 2});
    chain.layout.units.push_back({100, 100});
    chain.layout.sections.push_back({{i, 100}});
  }
  return chain;
}

TEST(TimedUnitsTest, OnlyTheFirstGatherAndTheLastReductionAreExposed) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}), {.zero = 3},
                 /*speed_during_communication=*/1);
  run.Forward(run.All());
  EXPECT_DOUBLE_EQ(run.exposed(), 0.5);
  EXPECT_DOUBLE_EQ(run.now(), 3.5);
  // The last unit stayed gathered; the others arrive during the preceding
  // computation.
  run.Backward(run.All(), /*reduces=*/true);
  run.Finish(/*updates=*/true);
  EXPECT_DOUBLE_EQ(run.now(), 10);
  EXPECT_DOUBLE_EQ(run.exposed(), 1);
}

TEST(TimedUnitsTest, InAPipelineBackwardBeginsWithAGather) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}),
                 {.zero = 3, .interleave_micro_batches = true},
                 /*speed_during_communication=*/1);
  run.Forward(run.All());
  run.Backward(run.All(), /*reduces=*/false);
  EXPECT_DOUBLE_EQ(run.exposed(), 1);
}

TEST(TimedUnitsTest, WithNoSpareCoreEveryCallIsExposed) {
  TimedUnits run(Chain(3), std::vector<UnitSeconds>(3, {0.5, 0.5}), {.zero = 1},
                 /*speed_during_communication=*/0);
  run.Forward(run.All());
  run.Backward(run.All(), /*reduces=*/true);
  run.Finish(/*updates=*/true);
  EXPECT_DOUBLE_EQ(run.now(), 9 + 6 * 0.5);
}

TEST(TimedUnitsTest, ASlowLinkSetsThePace) {
  TimedUnits run(Chain(2), std::vector<UnitSeconds>(2, {5, 0}), {.zero = 3},
                 /*speed_during_communication=*/1);
  run.Forward(run.All());
  EXPECT_DOUBLE_EQ(run.now(), 11);
  run.Backward(run.All(), /*reduces=*/false);
  EXPECT_DOUBLE_EQ(run.now(), 11 + 5 + 2);
}

class UnitSectionsTest : public ::testing::Test {
 protected:
  UnitSectionsTest() {
    work_.shapes = {
        {{100, 64}, {32, 64}}, {{kBlock}}, {{64}, {64}}, {{100, 64}}};
  }
  UnitSections SectionsOf(const Layout& layout,
                          const std::vector<Stage>& stages) const {
    return UnitSectionsOf(model_, layout, *OwnEngine("fp32"), stages, work_);
  }

  // Returns the units' sizes.
  static std::vector<int64_t> NumbersOf(const UnitSections& sections) {
    std::vector<int64_t> numbers;
    for (const UnitSize& unit : sections.layout.units)
      numbers.push_back(unit.numbers);
    return numbers;
  }

  static constexpr int64_t kBlock = 12 * 64 * 64 + 13 * 64;
  const Model model_ = {"even", 2, 64, 4, 32, 100, /*tied_head=*/true};
  const Stage first_ = {true, false, false, 1}, last_ = {false, true, true, 1};
  LayerWork work_;
};

TEST_F(UnitSectionsTest, ATiedHeadUsesTheEmbeddingsUnit) {
  const UnitSections whole = SectionsOf({}, {{true, true, true, 2}});
  EXPECT_THAT(NumbersOf(whole), ElementsAre(132 * 64, kBlock, kBlock, 128));
  ASSERT_EQ(whole.layout.sections.size(), 5);
  ASSERT_EQ(whole.layout.sections.back().size(), 1);
  EXPECT_EQ(whole.layout.sections.back()[0].unit, 0);
  EXPECT_THAT(whole.layout.tied, ElementsAre(0));
}

TEST_F(UnitSectionsTest, OfAnotherRanksEmbeddingItHasACopy) {
  EXPECT_THAT(NumbersOf(SectionsOf({.pp = 2}, {last_})),
              ElementsAre(kBlock, 128, 100 * 64));
}

TEST_F(UnitSectionsTest, OfZbvsFirstRankItHasNone) {
  const Layout zbv{.pp = 2, .schedule = "zbv", .chunks = 2};
  EXPECT_THAT(NumbersOf(SectionsOf(zbv, {last_})), ElementsAre(kBlock, 128));
  const UnitSections both = SectionsOf(zbv, {first_, last_});
  ASSERT_EQ(both.stages.size(), 2);
  EXPECT_EQ(both.stages[1].begin, 2);
  EXPECT_EQ(both.layout.sections.back()[0].unit, 0);
}

TEST(LinkRunTest, ComputingIsSlowerWhileACallIsInFlight) {
  LinkRun run(/*speed_during_communication=*/0.25);
  EXPECT_DOUBLE_EQ(run.Start(4), 4);
  run.Compute(0.5);
  EXPECT_DOUBLE_EQ(run.now(), 2);
  // Half of it in the remaining 2 s.
  run.Compute(1);
  EXPECT_DOUBLE_EQ(run.now(), 4.5);
  EXPECT_DOUBLE_EQ(run.exposed(), 3);
  EXPECT_DOUBLE_EQ(run.Start(1), 5.5);
  EXPECT_DOUBLE_EQ(run.Start(1), 6.5);
  run.WaitForAll();
  EXPECT_DOUBLE_EQ(run.exposed(), 5);
}

}  // namespace
}  // namespace rankwise::plan

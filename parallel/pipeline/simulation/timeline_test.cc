#include "parallel/pipeline/simulation/timeline.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

Span Compute(double start, double end) {
  return {{0, 0, ActionKind::kForward}, start, end};
}

TEST(MeasureBubblesTest, BothBubbles) {
  // Busy 3 of its 4 seconds, and 2 of its 2, in a wall-clock time of 5.
  const Timeline timeline{
      {{Compute(10, 11), Compute(12, 14)}, {Compute(13, 15)}}};
  const Bubbles bubbles = MeasureBubbles(timeline);
  EXPECT_THAT(bubbles.span_per_rank, ElementsAre(DoubleEq(0.25), DoubleEq(0)));
  EXPECT_THAT(bubbles.wall_per_rank, ElementsAre(DoubleEq(0.4), DoubleEq(0.6)));
  EXPECT_DOUBLE_EQ(bubbles.span, 0.125);
  EXPECT_DOUBLE_EQ(bubbles.wall, 0.5);
  EXPECT_DOUBLE_EQ(bubbles.wall_seconds, 5);
  EXPECT_THAT(bubbles.busy_seconds, ElementsAre(3, 2));
}

TEST(MeasureBubblesTest, ActionsAtTheSameTimeAreOneTime) {
  // Two stages of a rank that overlap: busy from 10 to 15 and from 16 to 17.
  const Timeline timeline{
      {{Compute(10, 13), Compute(11, 12), Compute(12, 15), Compute(16, 17)}}};
  EXPECT_THAT(MeasureBubbles(timeline).busy_seconds, ElementsAre(6));
  EXPECT_DOUBLE_EQ(ExtentOf(timeline.ranks[0]).overlapped_seconds, 2);
}

TEST(MeasureBubblesTest, PassesOverCommunication) {
  const Timeline timeline{
      {{{{0, 0, ActionKind::kRecvForward}, 0, 10}, Compute(10, 11)}}};
  const Bubbles bubbles = MeasureBubbles(timeline);
  EXPECT_EQ(bubbles.span, 0);
  EXPECT_EQ(bubbles.wall, 0);
  EXPECT_EQ(bubbles.wall_seconds, 1);
}

TEST(MeasureBubblesTest, ARankWithoutComputationIdlesAllTheTime) {
  const Bubbles bubbles = MeasureBubbles(Timeline{{{Compute(0, 1)}, {}}});
  EXPECT_THAT(bubbles.span_per_rank, ElementsAre(0, 0));
  EXPECT_THAT(bubbles.wall_per_rank, ElementsAre(0, 1));
}

TEST(MeasureBubblesTest, ZeroWithoutComputation) {
  for (const Timeline& timeline : {Timeline{}, Timeline{{{}, {}}}}) {
    const Bubbles bubbles = MeasureBubbles(timeline);
    EXPECT_EQ(bubbles.span, 0);
    EXPECT_EQ(bubbles.wall, 0);
    EXPECT_EQ(bubbles.wall_seconds, 0);
  }
}

}  // namespace
}  // namespace rankwise

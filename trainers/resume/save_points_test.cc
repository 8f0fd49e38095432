#include "trainers/resume/save_points.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "parallel/launch/signals.h"

namespace rankwise {
namespace {

using Next = SavePoints::Next;

TEST(SavePointsTest, SavesAtAFixedIntervalOfSteps) {
  const CheckpointConfig config = {.dir = "", .every_steps = 3};
  SavePoints points(config, nullptr);
  for (int64_t step = 1; step <= 9; ++step) {
    EXPECT_EQ(points.AfterStep(step, /*ends_epoch=*/false),
              step % 3 == 0 ? Next::kSave : Next::kTrain)
        << step;
  }
}

TEST(SavePointsTest, LeavesAnEpochsEndToTheRun) {
  const CheckpointConfig config = {.dir = "", .every_steps = 3};
  SavePoints points(config, nullptr);
  EXPECT_EQ(points.AfterStep(3, /*ends_epoch=*/true), Next::kTrain);
  EXPECT_EQ(points.AfterStep(6, /*ends_epoch=*/false), Next::kSave);
}

TEST(SavePointsTest, SavesOnceTheIntervalHasPassed) {
  const CheckpointConfig config = {.dir = "", .every_seconds = 0.3};
  SavePoints points(config, nullptr);
  int64_t step = 0;
  for (int save = 0; save < 2; ++save) {
    const double start = SteadySeconds();
    points.Saved();
    while (points.AfterStep(++step, false) == Next::kTrain)
      absl::SleepFor(absl::Milliseconds(10));
    EXPECT_GE(SteadySeconds() - start, 0.3);
    EXPECT_LT(step, 1000);
  }
}

TEST(SavePointsTest, WithoutAnIntervalOnlyASignalSavesAndEnds) {
  const CheckpointConfig config;
  SavePoints points(config, nullptr);
  EXPECT_EQ(points.AfterStep(1, false), Next::kTrain);
  CatchPreemption();
  raise(SIGUSR1);
  int64_t step = 1;
  while (points.AfterStep(++step, false) == Next::kTrain && step < 1000)
    absl::SleepFor(absl::Milliseconds(10));
  EXPECT_LT(step, 1000);
  EXPECT_EQ(SavePoints(config, nullptr).AfterStep(1, false), Next::kSaveAndEnd);

  // A signal takes effect only when there is new state to save.
  const CheckpointConfig third = {.dir = "", .multiple_of_steps = 3};
  EXPECT_EQ(SavePoints(third, nullptr).AfterStep(2, false), Next::kTrain);
  EXPECT_EQ(SavePoints(third, nullptr).AfterStep(2, true), Next::kSaveAndEnd);
  EXPECT_EQ(SavePoints(third, nullptr).AfterStep(3, false), Next::kSaveAndEnd);
}

}  // namespace
}  // namespace rankwise

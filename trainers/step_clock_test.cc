#include "trainers/step_clock.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>

namespace rankwise {
namespace {

void Sleep(int milliseconds) { usleep(milliseconds * 1000); }

TEST(StepClockTest, PhasesAreMeasuredAndAddUpToTheStep) {
  StepClock clock(at::kCPU);
  Sleep(2);  // between two steps: in the step, in no phase
  clock.Begin(Phase::kDataWait);
  Sleep(2);
  clock.Begin(Phase::kForward);
  Sleep(4);
  clock.Begin(Phase::kBackward);
  Sleep(6);
  clock.Begin(Phase::kOptimizer);
  Sleep(8);
  clock.Begin(Phase::kEnd);
  const StepTimes times = clock.Read();
  EXPECT_GE(times.data_wait_seconds, 0.002);
  EXPECT_GE(times.forward_seconds, 0.004);
  EXPECT_GE(times.backward_seconds, 0.006);
  EXPECT_GE(times.optimizer_seconds, 0.008);
  const double phases = times.data_wait_seconds + times.forward_seconds +
                        times.backward_seconds + times.optimizer_seconds;
  EXPECT_GE(times.step_seconds, phases + 0.002);
}

TEST(StepClockTest, RepeatedPhasesOfMicroBatchesAddUp) {
  StepClock clock(at::kCPU);
  for (int i = 0; i < 3; ++i) {
    clock.Begin(Phase::kForward);
    Sleep(3);
    clock.Begin(Phase::kBackward);
  }
  StepClock moved = std::move(clock);
  moved.Begin(Phase::kEnd);
  EXPECT_GE(moved.Read().forward_seconds, 0.009);
  EXPECT_EQ(moved.Read().optimizer_seconds, 0);
}

TEST(StepClockTest, ACapturedStepIsAPhaseOfItsOwn) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kCaptured);
  Sleep(3);
  clock.Begin(Phase::kEnd);
  EXPECT_GE(clock.Read().captured_seconds, 0.003);
  EXPECT_EQ(clock.Read().forward_seconds, 0);
}

TEST(StepClockTest, WrongUseIsRefused) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kForward);
  EXPECT_FALSE(clock.finished());
  EXPECT_THROW(clock.Read(), c10::Error);
  EXPECT_THROW(clock.Phases(), c10::Error);
  clock.Begin(Phase::kEnd);
  EXPECT_TRUE(clock.finished());
  EXPECT_THROW(clock.Begin(Phase::kForward), c10::Error);
}

TEST(StepClockTest, AnInertClockMarksNothing) {
  StepClock clock = StepClock::Inert();
  clock.Begin(Phase::kForward);
  clock.Begin(Phase::kEnd);
  clock.Begin(Phase::kForward);
  EXPECT_FALSE(clock.finished());
  EXPECT_THROW(clock.Read(), c10::Error);
}

}  // namespace
}  // namespace rankwise

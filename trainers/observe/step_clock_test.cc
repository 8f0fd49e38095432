#include "trainers/observe/step_clock.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "parallel/device/fake_device_for_test.h"

namespace rankwise {
namespace {

void Sleep(int milliseconds) { usleep(milliseconds * 1000); }

StepRecord Read(const StepClock& clock) {
  StepRecord record;
  clock.AddTo(record);
  return record;
}

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
  const StepRecord times = Read(clock);
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
  EXPECT_GE(Read(moved).forward_seconds, 0.009);
  EXPECT_EQ(Read(moved).optimizer_seconds, 0);
}

TEST(StepClockTest, ACapturedStepIsAPhaseOfItsOwn) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kCaptured);
  Sleep(3);
  clock.Begin(Phase::kEnd);
  EXPECT_GE(Read(clock).captured_seconds, 0.003);
  EXPECT_EQ(Read(clock).forward_seconds, 0);
}

TEST(StepClockTest, WrongUseIsRefused) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kForward);
  EXPECT_THROW(Read(clock), c10::Error);
  EXPECT_THROW(clock.Phases(), c10::Error);
  clock.Begin(Phase::kEnd);
  EXPECT_THROW(clock.Begin(Phase::kForward), c10::Error);
}

TEST(StepClockTest, AnInertClockMarksNothing) {
  StepClock clock = StepClock::Inert();
  clock.Begin(Phase::kForward);
  clock.Begin(Phase::kEnd);
  clock.Begin(Phase::kForward);
  EXPECT_THROW(Read(clock), c10::Error);
}

class DeviceStepClockTest : public testing::Test {
 protected:
  DeviceStepClockTest() { FakeDevice::Reset(); }
  // Up to here, the device needs until `seconds`.
  static void Reach(double seconds) { FakeDevice::RunAll(kDevice, seconds); }

  static inline const c10::Device kDevice = FakeDevice::At(0);
};

TEST_F(DeviceStepClockTest, PhasesAreTheDevicesButForWaitingForData) {
  StepClock clock(kDevice);
  clock.Begin(Phase::kDataWait);
  Reach(10);
  clock.Begin(Phase::kForward);
  Reach(20);
  clock.Begin(Phase::kBackward);
  Reach(23);
  clock.Begin(Phase::kOptimizer);
  Reach(28);
  clock.Begin(Phase::kEnd);
  FakeDevice::WhenHostWaits([] { Reach(40); });
  const StepRecord times = Read(clock);
  EXPECT_EQ(FakeDevice::waits(), 1) << "for the end, where all is over";
  EXPECT_DOUBLE_EQ(times.forward_seconds, 3);
  EXPECT_DOUBLE_EQ(times.backward_seconds, 5);
  EXPECT_DOUBLE_EQ(times.optimizer_seconds, 12);
  EXPECT_DOUBLE_EQ(times.step_seconds, 30);
  EXPECT_LT(times.data_wait_seconds, 5) << "the host did not wait";
}

TEST_F(DeviceStepClockTest, SpansCountFromTheHostsBegin) {
  StepClock clock(kDevice);
  Reach(100);
  clock.Begin(Phase::kForward);
  Reach(102);
  clock.Begin(Phase::kEnd);
  Reach(105);
  const double begin = static_cast<double>(clock.start_ns()) * 1e-9;
  const std::vector<PhaseSpan> spans = clock.Phases();
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_NEAR(spans[1].start_seconds, begin + 2, 1e-6);
  EXPECT_NEAR(spans[1].end_seconds, begin + 5, 1e-6);
}

TEST_F(DeviceStepClockTest, AnInertClockLeavesTheDeviceAlone) {
  StepClock clock = StepClock::Inert();
  clock.Begin(Phase::kForward);
  clock.Begin(Phase::kEnd);
  EXPECT_TRUE(FakeDevice::Idle(
      c10::impl::VirtualGuardImpl(kDevice.type()).getStream(kDevice)));
}

}  // namespace
}  // namespace rankwise

#include "trainers/observe/step_log.h"

#include <ATen/ops/tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parallel/device/device_event.h"
#include "parallel/device/fake_device_for_test.h"
#include "records/record_reader.h"

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
  Sleep(2);  // between steps: part of the step, but of no phase
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
  // The device completes the work submitted so far at `seconds`.
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

std::map<std::string, PendingDuration> ByAxis(const std::string& axis,
                                              double seconds) {
  std::map<std::string, PendingDuration> by_axis;
  by_axis[axis] = seconds;
  return by_axis;
}

PendingStep Step(int64_t number, double loss, int64_t examples) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kForward);
  clock.Begin(Phase::kEnd);
  StepRecord record;
  record.step = number;
  record.epoch = 1;
  record.examples = examples;
  return {record,
          {.loss = at::tensor(loss, at::kFloat),
           .exposed_comm_seconds = 0.25,
           .exposed_by_axis = ByAxis("tp", 0.125),
           .wait_seconds = 0.5},
          std::move(clock),
          TrafficRecord()};
}

TEST(StepLogTest, EveryStepIsRecordedWithItsLossAndTimes) {
  const std::string path =
      std::string(std::getenv("TEST_TMPDIR")) + "/steps.jsonl";
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_TRUE((*writer)->Write(Record(RunRecord())).ok());
  StepLog log(at::kCPU, writer->get());
  ASSERT_TRUE(log.Add(Step(1, 2.5, 4)).ok());
  ASSERT_TRUE(log.Add(Step(2, 1.5, 2)).ok());
  ASSERT_TRUE(log.Flush().ok());

  auto records = ReadRecords(path);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 5u);
  const StepRecord& second = std::get<StepRecord>((*records)[3]);
  EXPECT_EQ(second.step, 2);
  EXPECT_EQ(second.loss, 1.5);
  EXPECT_EQ(second.exposed_comm_seconds, 0.375);
  EXPECT_EQ(second.exposed_by_axis_seconds,
            (std::map<std::string, double>{{"dp", 0.25}, {"tp", 0.125}}));
  EXPECT_GT(second.step_seconds, 0);
  const TrafficRecord& traffic = std::get<TrafficRecord>((*records)[4]);
  EXPECT_EQ(traffic.exposed_comm_seconds, 0.875) << "a pipeline's own, too";
  EXPECT_EQ(traffic.step_seconds, second.step_seconds);
}

TEST(StepLogTest, EpochSumsWeighByExamples) {
  StepLog log(at::kCPU, /*writer=*/nullptr);
  ASSERT_TRUE(log.Add(Step(1, 3.0, 1)).ok());
  ASSERT_TRUE(log.Add(Step(2, 1.0, 3)).ok());
  EXPECT_DOUBLE_EQ(log.epoch_sums().loss, 6.0);
  EXPECT_EQ(log.epoch_sums().examples, 4);
  EXPECT_DOUBLE_EQ(*log.last_loss(), 1.0);
}

TEST(StepLogTest, RemembersTheFirstNumberThatIsNotFinite) {
  StepLog log(at::kCPU, /*writer=*/nullptr);
  EXPECT_FALSE(log.last_loss().has_value());
  ASSERT_TRUE(log.Add(Step(1, 1.0, 1)).ok());
  PendingStep of_none = Step(1, std::nan(""), 0);
  of_none.outcome.loss_rank = StepOutcome::kNoRank;
  ASSERT_TRUE(log.Add(std::move(of_none)).ok());
  EXPECT_EQ(log.first_non_finite().step, 0);
  PendingStep second = Step(2, std::nan(""), 1);
  second.outcome.loss_rank = 3;
  ASSERT_TRUE(log.Add(std::move(second)).ok());
  ASSERT_TRUE(
      log.Add(Step(3, std::numeric_limits<double>::infinity(), 1)).ok());
  const NonFinite& found = log.first_non_finite();
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.rank, 3);
  EXPECT_TRUE(std::isnan(found.value));
  EXPECT_FALSE(found.is_gradient_norm);
}

TEST(StepLogTest, AGradientsNormCountsToo) {
  StepLog log(at::kCPU, /*writer=*/nullptr);
  for (const double norm : {2.0, std::numeric_limits<double>::infinity()}) {
    PendingStep step = Step(log.epoch_sums().examples + 1, 0.5, 1);
    step.outcome.gradient_norm = at::tensor(norm);
    ASSERT_TRUE(log.Add(std::move(step)).ok());
  }
  EXPECT_DOUBLE_EQ(*log.last_loss(), 0.5);
  EXPECT_DOUBLE_EQ(log.epoch_sums().loss, 1.0);
  EXPECT_EQ(log.first_non_finite().step, 2);
  EXPECT_TRUE(log.first_non_finite().is_gradient_norm);
}

// As under fp16, where a step whose gradients overflow changes nothing.
TEST(StepLogTest, ToleratesAFewLossesInARow) {
  StepLog log(at::kCPU, /*writer=*/nullptr, /*non_finite_steps=*/3);
  int64_t step = 0;
  for (const bool finite : {false, false, true, false, false}) {
    const double loss = finite ? 1.0 : std::nan("");
    ASSERT_TRUE(log.Add(Step(++step, loss, 1)).ok());
  }
  EXPECT_EQ(log.first_non_finite().step, 0);
  ASSERT_TRUE(log.Add(Step(++step, std::nan(""), 1)).ok());
  EXPECT_EQ(log.first_non_finite().step, 6);
}

// A device that is far behind: which calls wait for it.
TEST(DeviceStepLogTest, TheHostWaitsInFlushAndNowhereElse) {
  FakeDevice::Reset();
  const c10::Device device = FakeDevice::At(0);
  StepLog log(device, /*writer=*/nullptr);
  for (int64_t number = 1; number <= 5; ++number) {
    StepClock clock(device);
    clock.Begin(Phase::kForward);
    DeviceEvent exposed_from(device);
    PendingDuration exposed(std::move(exposed_from), DeviceEvent(device));
    clock.Begin(Phase::kEnd);
    StepRecord record;
    record.step = number;
    record.examples = 1;
    const at::Tensor loss =
        at::tensor(static_cast<double>(number), at::kFloat).to(device);
    StepOutcome outcome{.loss = loss,
                        .exposed_comm_seconds = std::move(exposed)};
    ASSERT_TRUE(log.Add({record, std::move(outcome), std::move(clock)}).ok());
  }
  EXPECT_EQ(FakeDevice::waits(), 0);
  EXPECT_EQ(log.epoch_sums().examples, 0) << "nothing is known yet";
  FakeDevice::WhenHostWaits([&] { FakeDevice::RunAll(device, 1); });
  ASSERT_TRUE(log.Flush().ok());
  EXPECT_GT(FakeDevice::waits(), 0);
  EXPECT_EQ(log.epoch_sums().examples, 5);
  EXPECT_DOUBLE_EQ(log.epoch_sums().loss, 1 + 2 + 3 + 4 + 5);
  EXPECT_DOUBLE_EQ(*log.last_loss(), 5);
}

}  // namespace
}  // namespace rankwise

#include "trainers/observe/step_log.h"

#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <variant>

#include "parallel/device/device_event.h"
#include "parallel/device/fake_device_for_test.h"
#include "records/record_reader.h"

namespace rankwise {
namespace {

PendingStep Step(int64_t number, double loss, int64_t examples) {
  StepClock clock(at::kCPU);
  clock.Begin(Phase::kForward);
  clock.Begin(Phase::kEnd);
  StepRecord record;
  record.step = number;
  record.epoch = 1;
  record.examples = examples;
  TrafficRecord traffic;
  traffic.exposed_comm_seconds = 0.5;
  return {record, at::tensor(loss, at::kFloat), std::move(clock), traffic,
          /*exposed_comm=*/0.25};
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
  EXPECT_EQ(second.exposed_comm_seconds, 0.25);
  EXPECT_GT(second.step_seconds, 0);
  const TrafficRecord& traffic = std::get<TrafficRecord>((*records)[4]);
  EXPECT_EQ(traffic.exposed_comm_seconds, 0.75) << "a pipeline's own, too";
  EXPECT_EQ(traffic.step_seconds, second.step_seconds);
}

TEST(StepLogTest, EpochSumsWeighByExamples) {
  StepLog log(at::kCPU, /*writer=*/nullptr);
  ASSERT_TRUE(log.Add(Step(1, 3.0, 1)).ok());
  ASSERT_TRUE(log.Add(Step(2, 1.0, 3)).ok());
  EXPECT_DOUBLE_EQ(log.epoch_sums().loss, 6.0);
  EXPECT_EQ(log.epoch_sums().examples, 4);
  EXPECT_DOUBLE_EQ(log.last_loss(), 1.0);
}

TEST(StepLogTest, RemembersTheFirstStepThatWentWrong) {
  StepLog log(at::kCPU, /*writer=*/nullptr);
  ASSERT_TRUE(log.Add(Step(1, 1.0, 1)).ok());
  EXPECT_EQ(log.first_non_finite_step(), 0);
  ASSERT_TRUE(log.Add(Step(2, std::nan(""), 1)).ok());
  ASSERT_TRUE(
      log.Add(Step(3, std::numeric_limits<double>::infinity(), 1)).ok());
  EXPECT_EQ(log.first_non_finite_step(), 2);
}

// What may wait for a device, and when: the log of a device that is far behind.
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
    ASSERT_TRUE(log.Add({record, loss, std::move(clock), std::nullopt,
                         std::move(exposed)})
                    .ok());
  }
  EXPECT_EQ(FakeDevice::waits(), 0);
  EXPECT_EQ(log.epoch_sums().examples, 0) << "nothing is known yet";
  FakeDevice::WhenHostWaits([&] { FakeDevice::RunAll(device, 1); });
  ASSERT_TRUE(log.Flush().ok());
  EXPECT_GT(FakeDevice::waits(), 0);
  EXPECT_EQ(log.epoch_sums().examples, 5);
  EXPECT_DOUBLE_EQ(log.epoch_sums().loss, 1 + 2 + 3 + 4 + 5);
  EXPECT_DOUBLE_EQ(log.last_loss(), 5);
}

}  // namespace
}  // namespace rankwise

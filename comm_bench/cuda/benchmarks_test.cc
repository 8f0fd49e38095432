#include "comm_bench/cuda/benchmarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace rankwise::micro {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr int kIterations = 4;

// A device whose Run takes a quarter of a second, and that can fail at a given
// step.
struct FakeDevice {
  void Note(const char* step) {
    steps.push_back(step);
    if (fails()) throw std::runtime_error("the device is gone");
  }
  bool fails() const { return static_cast<int>(steps.size()) == failing_step; }

  int failing_step = 0;  // counted from 1
  std::vector<std::string> steps;
};

class FakeMeasurement : public Measurement {
 public:
  explicit FakeMeasurement(FakeDevice& device) : device_(device) {}
  void Clear() override { device_.Note("clear"); }
  double Run() override {
    device_.Note("run");
    return 0.25;
  }
  absl::Status Check() override {
    device_.steps.push_back("check");
    return device_.fails() ? absl::DataLossError("byte 7 is 3 and not 4")
                           : absl::OkStatus();
  }

 private:
  FakeDevice& device_;
};

class Capture : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& report) override {
    runs.insert(runs.end(), report.begin(), report.end());
  }
  std::vector<Run> runs;
};

struct Outcome {
  bool succeeded = false;
  benchmark::BenchmarkReporter::Run run;
};

Outcome Measure(const MakeMeasurement& make, const Traffic& traffic) {
  Outcome outcome;
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("Fake",
                               [&](benchmark::State& state) {
                                 outcome.succeeded =
                                     RunMeasurement(state, make, traffic);
                               })
      ->UseManualTime()
      ->Iterations(kIterations);
  Capture capture;
  benchmark::RunSpecifiedBenchmarks(&capture);
  if (capture.runs.size() == 1) outcome.run = capture.runs[0];
  return outcome;
}

Outcome Measure(FakeDevice& device, const Traffic& traffic) {
  return Measure([&] { return std::make_unique<FakeMeasurement>(device); },
                 traffic);
}

TEST(RunMeasurement, SaysTheRateAndItsShareOfTheLimit) {
  FakeDevice device;
  const Outcome outcome = Measure(device, {100, {1000, "of memory"}});
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_EQ(outcome.run.iterations, kIterations);
  EXPECT_DOUBLE_EQ(outcome.run.real_accumulated_time, kIterations * 0.25);
  EXPECT_EQ(outcome.run.report_label, "of memory");
  const auto& counters = outcome.run.counters;
  EXPECT_DOUBLE_EQ(counters.at("bytes_per_second").value, 400);
  EXPECT_DOUBLE_EQ(counters.at("limit_bytes_per_second").value, 1000);
  EXPECT_DOUBLE_EQ(counters.at("% of limit").value, 40);
}

TEST(RunMeasurement, ChecksBeforeAndAfterWithoutOldResults) {
  FakeDevice device;
  Measure(device, {});
  EXPECT_THAT(device.steps, ElementsAre("clear", "run", "check", "clear", "run",
                                        "run", "run", "run", "check"));
}

TEST(RunMeasurement, AnUnknownLimitIsSaidAndNotAShareOfZero) {
  FakeDevice device;
  const Outcome outcome = Measure(device, {100, {0, "limit unknown: x"}});
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_EQ(outcome.run.report_label, "limit unknown: x");
  EXPECT_EQ(outcome.run.counters.count("% of limit"), 0u);
  EXPECT_EQ(outcome.run.counters.count("limit_bytes_per_second"), 0u);
}

TEST(RunMeasurement, ALatencyHasNoRate) {
  FakeDevice device;
  const Outcome outcome = Measure(device, {});
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_TRUE(outcome.run.counters.empty());
}

TEST(RunMeasurement, EveryStepThatFailsIsSaid) {
  for (int step = 1; step <= 9; ++step) {
    FakeDevice device;
    device.failing_step = step;
    const Outcome outcome = Measure(device, {100, {1000, "of memory"}});
    EXPECT_FALSE(outcome.succeeded) << step;
    EXPECT_TRUE(outcome.run.error_occurred) << step;
    const bool checks = step == 3 || step == 9;
    EXPECT_EQ(outcome.run.error_message,
              checks ? "byte 7 is 3 and not 4" : "the device is gone")
        << step;
    EXPECT_EQ(static_cast<int>(device.steps.size()), step);
  }
}

TEST(RunMeasurement, WhatCannotBeMadeIsSaid) {
  const Outcome outcome = Measure(
      []() -> std::unique_ptr<Measurement> {
        throw std::runtime_error("no memory is left");
      },
      {});
  EXPECT_FALSE(outcome.succeeded);
  EXPECT_EQ(outcome.run.error_message, "no memory is left");
}

}  // namespace
}  // namespace rankwise::micro

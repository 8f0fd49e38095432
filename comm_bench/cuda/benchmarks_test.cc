#include "comm_bench/cuda/benchmarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "absl/status/status.h"

namespace rankwise::micro {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr int kIterations = 4;

// A device that takes a quarter of a second, and can fail at a step.
class FakeMeasurement : public Measurement {
 public:
  absl::Status Clear() override {
    steps.push_back("clear");
    return Next();
  }
  absl::StatusOr<double> Run() override {
    steps.push_back("run");
    const absl::Status status = Next();
    if (!status.ok()) return status;
    return 0.25;
  }
  absl::Status Check() override {
    steps.push_back("check");
    return Next();
  }

  int failing_step = 0;  // from 1 on
  std::vector<std::string> steps;

 private:
  absl::Status Next() {
    return static_cast<int>(steps.size()) == failing_step
               ? absl::DataLossError("byte 7 is 3 and not 4")
               : absl::OkStatus();
  }
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

Outcome Measure(FakeMeasurement& measurement, const Traffic& traffic) {
  Outcome outcome;
  benchmark::ClearRegisteredBenchmarks();
  benchmark::RegisterBenchmark("Fake",
                               [&](benchmark::State& state) {
                                 outcome.succeeded = RunMeasurement(
                                     state, measurement, traffic);
                               })
      ->UseManualTime()
      ->Iterations(kIterations);
  Capture capture;
  benchmark::RunSpecifiedBenchmarks(&capture);
  if (capture.runs.size() == 1) outcome.run = capture.runs[0];
  return outcome;
}

TEST(RunMeasurement, SaysTheRateAndItsShareOfTheLimit) {
  FakeMeasurement measurement;
  const Outcome outcome = Measure(measurement, {100, {1000, "of memory"}});
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
  FakeMeasurement measurement;
  Measure(measurement, {});
  EXPECT_THAT(measurement.steps,
              ElementsAre("clear", "run", "check", "clear", "run", "run", "run",
                          "run", "check"));
}

TEST(RunMeasurement, AnUnknownLimitIsSaidAndNotAShareOfZero) {
  FakeMeasurement measurement;
  const Outcome outcome = Measure(measurement, {100, {0, "limit unknown: x"}});
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_EQ(outcome.run.report_label, "limit unknown: x");
  EXPECT_EQ(outcome.run.counters.count("% of limit"), 0u);
  EXPECT_EQ(outcome.run.counters.count("limit_bytes_per_second"), 0u);
}

TEST(RunMeasurement, ALatencyHasNoRate) {
  FakeMeasurement measurement;
  const Outcome outcome = Measure(measurement, {});
  EXPECT_TRUE(outcome.succeeded);
  EXPECT_TRUE(outcome.run.counters.empty());
}

TEST(RunMeasurement, EveryStepThatFailsIsSaid) {
  for (int step = 1; step <= 9; ++step) {
    FakeMeasurement measurement;
    measurement.failing_step = step;
    const Outcome outcome = Measure(measurement, {100, {1000, "of memory"}});
    EXPECT_FALSE(outcome.succeeded) << step;
    EXPECT_TRUE(outcome.run.error_occurred) << step;
    EXPECT_EQ(outcome.run.error_message, "byte 7 is 3 and not 4") << step;
    EXPECT_EQ(static_cast<int>(measurement.steps.size()), step);
  }
}

}  // namespace
}  // namespace rankwise::micro

#include "analysis/prediction/recordings.h"
#include "analysis/prediction/runs_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

DdpRecordings Recordings(const std::vector<RunTrace>& runs) {
  const auto usable = PredictableRuns(runs, {});
  EXPECT_TRUE(usable.ok()) << usable.status();
  auto recordings = CollectDdp(*usable, {});
  EXPECT_TRUE(recordings.ok()) << recordings.status();
  return *std::move(recordings);
}

// A step of 34 ms; 4 MB and 2 MB buckets, ready 10 and 20 ms into backward.
DdpRunForTest Ranks(int64_t world_size, int64_t batch = 64) {
  return {.world_size = world_size, .batch = batch};
}

Layout Ddp(int64_t dp, int64_t batch = 64) {
  return {.dp = dp, .micro_batch = batch};
}

double Seconds(const DdpRecordings& recordings, const Layout& layout,
               const NetworkModel& network) {
  const auto simulated = SimulateDdpLayout(recordings, layout, network);
  EXPECT_TRUE(simulated.ok()) << simulated.status();
  return simulated->runs[0][0].middle.step_seconds;
}

// 10 ms, then backward of 20 ms, then 4 ms.
DdpStepTrace Step(std::vector<ReadyBucket> buckets) {
  return {0.010, 0.020, 0.004, std::move(buckets)};
}

StepTimes Simulate(const DdpStepTrace& trace,
                   const std::vector<double>& all_reduce_seconds) {
  return SimulateDdpStep(trace, all_reduce_seconds);
}

TEST(SimulateDdpStep, FreeCommunicationLeavesComputing) {
  const StepTimes times = Simulate(Step({{4e6, 0.020}}), {0});
  EXPECT_DOUBLE_EQ(times.step_seconds, 0.034);
  EXPECT_EQ(times.exposed_comm_seconds, 0);
}

TEST(SimulateDdpStep, LastBucketIsExposedWhole) {
  const StepTimes times = Simulate(Step({{4e6, 0.020}}), {0.004});
  EXPECT_DOUBLE_EQ(times.exposed_comm_seconds, 0.004);
  EXPECT_DOUBLE_EQ(times.step_seconds, 0.038);
}

TEST(SimulateDdpStep, EarlyBucketsHideBehindBackward) {
  // 5 to 15 ms, then 20 to 21.
  const StepTimes times =
      Simulate(Step({{10e6, 0.005}, {1e6, 0.020}}), {0.010, 0.001});
  EXPECT_NEAR(times.exposed_comm_seconds, 0.001, 1e-12);
}

TEST(SimulateDdpStep, BucketsWaitForEachOther) {
  // 5 to 30 ms; the second waits from 20 to 30, and ends at 31.
  const StepTimes times =
      Simulate(Step({{25e6, 0.005}, {1e6, 0.020}}), {0.025, 0.001});
  EXPECT_NEAR(times.exposed_comm_seconds, 0.011, 1e-12);
  EXPECT_NEAR(times.step_seconds, 0.045, 1e-12);
}

TEST(SimulateDdpStep, WithoutBucketsNothingIsExposed) {
  EXPECT_DOUBLE_EQ(Simulate(Step({}), {}).step_seconds, 0.034);
}

TEST(CollectDdp, FindsBucketsAndComputing) {
  DdpRunForTest config = Ranks(2);
  config.beta_seconds_per_byte = 1e-9;
  config.peak_bytes = 5e8;
  const DdpRecordings recordings = Recordings({MakeDdpRun(config)});
  ASSERT_EQ(recordings.runs.size(), 1u);
  EXPECT_EQ(recordings.runs[0].steps.size(), 60u);  // 30 steps, two ranks
  double seconds = 0;
  for (const auto part : kComputeParts) {
    seconds += recordings.runs[0].steps[0].*part;
  }
  EXPECT_NEAR(seconds, 0.034, 1e-9);
  EXPECT_EQ(recordings.runs[0].peak_bytes, 5e8);
  ASSERT_EQ(recordings.plans.size(), 1u);
  ASSERT_EQ(recordings.plans[0].buckets.size(), 2u);
  EXPECT_NEAR(recordings.plans[0].buckets[0].ready_seconds, 0.5, 1e-9);
  EXPECT_NEAR(recordings.plans[0].buckets[1].ready_seconds, 1, 1e-9);
  EXPECT_NEAR(recordings.plans[0].tail_seconds, 0, 1e-9);
}

TEST(CollectDdp, RefusesWithoutTraffic) {
  const std::vector<RunTrace> runs = {MakeDdpRun({.traffic_steps = 0})};
  const auto usable = PredictableRuns(runs, {});
  const auto recordings = CollectDdp(*usable, {});
  EXPECT_THAT(std::string(recordings.status().message()),
              HasSubstr("--traffic_steps=10"));
}

TEST(CollectDdp, RefusesWhereNoRunCommunicates) {
  const std::vector<RunTrace> runs = {MakeDdpRun({.skip_communication = true})};
  const auto usable = PredictableRuns(runs, {});
  const auto recordings = CollectDdp(*usable, {});
  EXPECT_THAT(std::string(recordings.status().message()),
              HasSubstr("--skip_communication"));
}

TEST(SimulateDdpLayout, OverlapsAsTheBucketsAllow) {
  const DdpRecordings recordings = Recordings({MakeDdpRun(Ranks(1))});
  // 4 ms from 10, 2 ms from 20: the last bucket is exposed.
  EXPECT_NEAR(Seconds(recordings, Ddp(8), FlatNetwork(0, 1e-9)), 0.036, 1e-9);
  // 20 ms from 10, 10 ms from 30: 20 ms are exposed.
  EXPECT_NEAR(Seconds(recordings, Ddp(8), FlatNetwork(0, 5e-9)), 0.054, 1e-9);
  EXPECT_NEAR(Seconds(recordings, Ddp(1), FlatNetwork(1, 1)), 0.034, 1e-9);
}

TEST(SimulateDdpLayout, BucketsCanBeJoined) {
  const DdpRecordings recordings = Recordings({MakeDdpRun(Ranks(1))});
  Layout layout = Ddp(8);
  layout.bucket_bytes = 1e9;
  // 6 MB from 20 ms on.
  EXPECT_NEAR(Seconds(recordings, layout, FlatNetwork(0, 1e-9)), 0.040, 1e-9);
}

TEST(SimulateDdpLayout, MirrorImagesAreNeverLate) {
  DdpRunForTest config = Ranks(8);
  config.backend = "fake";
  const DdpRecordings recordings =
      Recordings({MirrorFakeRanks(MakeDdpRun(config))});
  EXPECT_EQ(recordings.runs[0].steps.size(), 30u);  // of one rank
  const auto simulated =
      SimulateDdpLayout(recordings, Ddp(64), FlatNetwork(0, 1e-9));
  ASSERT_TRUE(simulated.ok());
  EXPECT_EQ(simulated->waiting, 1);
  EXPECT_THAT(simulated->assumptions, Contains(HasSubstr("backend fake")));
  EXPECT_FALSE(simulated->extrapolations.empty());
}

// Computation of 40 ms on 4 ranks that share a machine, 34 ms on fewer.
DdpRunForTest Slower(int64_t world_size) {
  DdpRunForTest config = Ranks(world_size);
  config.trace.before_backward_seconds = 0.016;
  return config;
}

TEST(FindCompute, PrefersAsManyRanksWithoutCommunication) {
  DdpRunForTest shared = Slower(4);
  shared.skip_communication = true;
  const DdpRecordings recordings = Recordings(
      {MakeDdpRun(Ranks(1)), MakeDdpRun(Ranks(2)), MakeDdpRun(shared)});
  const auto source = FindCompute(recordings, 64, 4);
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ(source->runs.size(), 1u);
  EXPECT_TRUE(source->runs[0]->skips_communication);
  EXPECT_THAT(source->assumptions,
              Contains(HasSubstr("4 ranks with --skip_communication")));
  EXPECT_NEAR(Seconds(recordings, Ddp(4), FlatNetwork(0, 1e-9)), 0.042, 1e-9);
}

TEST(FindCompute, ElseTakesTheMostRanksBelow) {
  const DdpRecordings recordings =
      Recordings({MakeDdpRun(Ranks(1)), MakeDdpRun(Slower(2)),
                  MakeDdpRun(Slower(2)), MakeDdpRun(Ranks(16))});
  const auto source = FindCompute(recordings, 64, 8);
  ASSERT_TRUE(source.ok());
  ASSERT_EQ(source->runs.size(), 2u);
  EXPECT_EQ(source->runs[0]->world_size, 2);
  EXPECT_TRUE(source->extrapolations.empty());  // 16 ranks were run
  EXPECT_FALSE(FindCompute(recordings, 64, 32)->extrapolations.empty());
}

TEST(FindCompute, OneRankMeansCoresOfItsOwn) {
  const DdpRecordings recordings = Recordings({MakeDdpRun(Ranks(1))});
  EXPECT_THAT(FindCompute(recordings, 64, 8)->assumptions,
              Contains(HasSubstr("cores of its own")));
}

TEST(FindCompute, AnotherBatchFollowsALine) {
  DdpRunForTest small = Ranks(2, 32);
  small.trace = {0.006, 0.012, 0.004, {{4e6, 0.006}, {2e6, 0.012}}};
  const DdpRecordings recordings =
      Recordings({MakeDdpRun(small), MakeDdpRun(Ranks(2, 64))});
  // before 2 + 8/64 b, backward 4 + 16/64 b, after 4 ms.
  const double no_cost = Seconds(recordings, Ddp(8, 16), FlatNetwork(0, 0));
  EXPECT_NEAR(no_cost, 0.004 + 0.008 + 0.004, 1e-9);
  const auto source = FindCompute(recordings, 16, 8);
  EXPECT_FALSE(source->extrapolations.empty());
  EXPECT_THAT(source->extrapolations,
              Contains(HasSubstr("batch 16 per rank was "
                                 "not run")));
}

TEST(FindCompute, RefusesABatchThatOneOtherDoesNotTell) {
  const DdpRecordings recordings = Recordings({MakeDdpRun(Ranks(2))});
  const auto source = FindCompute(recordings, 16, 8);
  EXPECT_EQ(source.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(source.status().message()),
              HasSubstr("//trainers:ddp -- --batch_size=16"));
}

TEST(SimulateDdpLayout, MemoryFollowsTheBatch) {
  DdpRunForTest small = Ranks(1, 32), large = Ranks(1, 64);
  small.peak_bytes = 3e8;
  large.peak_bytes = 4e8;
  const DdpRecordings recordings =
      Recordings({MakeDdpRun(small), MakeDdpRun(large)});
  const auto peak = [&](int64_t batch) {
    return SimulateDdpLayout(recordings, Ddp(8, batch), FlatNetwork(0, 0))
        ->peak_bytes;
  };
  EXPECT_EQ(peak(32), 3e8);
  EXPECT_EQ(peak(64), 4e8);
  EXPECT_NEAR(peak(128), 6e8, 1);
  EXPECT_EQ(peak(8), 3e8);  // at least the smallest recorded value
}

TEST(SimulateDdpLayout, SaysWhichCostIsMissing) {
  const DdpRecordings recordings = Recordings({MakeDdpRun(Ranks(1))});
  NetworkModel empty;
  empty.backend = "gloo";
  EXPECT_FALSE(SimulateDdpLayout(recordings, Ddp(8), empty).ok());
  EXPECT_THAT(
      std::string(
          SimulateDdpLayout({}, Ddp(8), FlatNetwork(0, 0)).status().message()),
      HasSubstr("no run of ddp"));
}

TEST(NearestPlan, GoesByBatchThenByRanks) {
  std::vector<BucketPlan> plans(4);
  plans[0].world_size = 1;
  plans[1].world_size = 2;
  plans[2].world_size = 16;
  plans[3].world_size = 8;
  for (BucketPlan& plan : plans) plan.batch = 64;
  plans[3].batch = 32;
  EXPECT_EQ(NearestPlan(plans, 64, 8).world_size, 2);
  EXPECT_EQ(NearestPlan(plans, 64, 32).world_size, 16);
  EXPECT_EQ(NearestPlan(plans, 30, 2).world_size, 8);
}

}  // namespace
}  // namespace rankwise

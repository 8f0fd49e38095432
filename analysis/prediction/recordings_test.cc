#include "analysis/prediction/recordings.h"

#include <limits>

#include "analysis/prediction/runs_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(MirrorFakeRanks, MakesARunComplete) {
  const RunTrace alone = MakeDdpRun({.world_size = 32, .backend = "fake"});
  EXPECT_FALSE(CheckRun(alone).ok());
  const RunTrace run = MirrorFakeRanks(alone);
  EXPECT_TRUE(CheckRun(run).ok()) << CheckRun(run);
  ASSERT_EQ(run.ranks.size(), 32u);
  EXPECT_EQ(run.ranks[31].run.rank, 31);
  EXPECT_EQ(run.ranks[31].steps.back().rank, 31);
  EXPECT_EQ(run.ranks[31].steps.size(), run.ranks[0].steps.size());
}

TEST(MirrorFakeRanks, LeavesOtherRunsAlone) {
  RunTrace run = MakeDdpRun({.world_size = 4});
  run.ranks.resize(1);  // the others' records were lost
  EXPECT_EQ(MirrorFakeRanks(run).ranks.size(), 1u);
}

TEST(MirrorFakeRanks, LeavesMoreRanksThanMemoryHoldsAlone) {
  RunTrace run = MakeDdpRun({.world_size = 2, .backend = "fake"});
  run.ranks.resize(1);
  run.ranks[0].run.world_size = int64_t{1} << 40;
  EXPECT_EQ(MirrorFakeRanks(run).ranks.size(), 1u);
}

TEST(PredictableRuns, TakesTrainersThatCanBeMeasured) {
  RunTrace bench = MakeDdpRun({});
  bench.ranks[0].run.binary = "comm_bench";
  RunTrace torn = MakeDdpRun({.world_size = 2});
  torn.ranks.pop_back();
  const std::vector<RunTrace> runs = {bench, MakeDdpRun({}), torn,
                                      MakePipelineRun({}),
                                      MakeDdpRun({.steps = 12})};
  const auto usable = PredictableRuns(runs, {});
  ASSERT_TRUE(usable.ok()) << usable.status();
  ASSERT_EQ(usable->size(), 2u);
  EXPECT_EQ((*usable)[0], &runs[1]);
  EXPECT_EQ((*usable)[1], &runs[3]);
}

std::string Refusal(const std::vector<RunTrace>& runs) {
  const auto usable = PredictableRuns(runs, {});
  EXPECT_EQ(usable.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(usable.status().message());
}

TEST(PredictableRuns, RefusesToMixModels) {
  std::vector<RunTrace> runs = {MakeDdpRun({.run_id = "a"}),
                                MakeDdpRun({.run_id = "b"})};
  runs[1].ranks[0].run.flags["model"] = "resnet20";
  EXPECT_THAT(
      Refusal(runs),
      AllOf(HasSubstr("--model"), HasSubstr("simple_cnn"),
            HasSubstr("resnet20"), HasSubstr("a.jsonl"), HasSubstr("b.jsonl")));
}

TEST(PredictableRuns, RefusesToMixBuckets) {
  std::vector<RunTrace> runs = {MakeDdpRun({}), MakeDdpRun({})};
  runs[0].ranks[0].run.flags["bucket_cap_mb"] = "25";
  runs[1].ranks[0].run.flags["bucket_cap_mb"] = "1";
  EXPECT_THAT(Refusal(runs), HasSubstr("--bucket_cap_mb"));
}

TEST(PredictableRuns, RefusesToMixThreadsBackendsAndMachines) {
  std::vector<RunTrace> runs = {MakeDdpRun({}), MakeDdpRun({})};
  runs[1].ranks[0].run.threads_per_rank = 2;
  EXPECT_THAT(Refusal(runs), HasSubstr("threads per rank"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.backend = "nccl";
  EXPECT_THAT(Refusal(runs), HasSubstr("the backend"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.host.cpu_model = "B CPU";
  EXPECT_THAT(Refusal(runs), HasSubstr("the CPU"));
  runs[1] = MakeDdpRun({});
  runs[1].ranks[0].run.devices = {"cuda:0"};
  EXPECT_THAT(Refusal(runs), HasSubstr("the device"));
}

TEST(PredictableRuns, PassesOverCapturedSteps) {
  std::vector<RunTrace> runs = {MakeDdpRun({.run_id = "graph"}),
                                MakeDdpRun({})};
  for (StepRecord& step : runs[0].ranks[0].steps) step.captured_seconds = 0.1;
  const auto usable = PredictableRuns(runs, {});
  ASSERT_TRUE(usable.ok()) << usable.status();
  ASSERT_EQ(usable->size(), 1u);
  EXPECT_EQ((*usable)[0], &runs[1]);
  runs.pop_back();
  EXPECT_THAT(Refusal(runs),
              AllOf(HasSubstr("graph.jsonl"), HasSubstr("--cuda_graph=false")));
}

TEST(ExamplesPerStep, LeavesTheWarmUpOut) {
  RunTrace run = MakeDdpRun({.batch = 64, .steps = 20});
  for (int i = 0; i < 12; ++i) run.ranks[0].steps[i].examples = 1;
  EXPECT_EQ(ExamplesPerStep(run, {.warmup_steps = 12}), 64);
}

TEST(DdpTraces, FindsWhatTheStepsWereMadeOf) {
  DdpRunForTest config{.world_size = 2};
  config.alpha_seconds = 0.001;
  config.beta_seconds_per_byte = 2e-9;
  const RunTrace run = MakeDdpRun(config);
  const auto traces = DdpTraces(run, {.warmup_steps = 2});
  ASSERT_TRUE(traces.ok()) << traces.status();
  ASSERT_EQ(traces->size(), 6u);  // 3 steps of 2 ranks
  for (const DdpStepTrace& trace : *traces) {
    EXPECT_NEAR(trace.before_backward_seconds, 0.010, 1e-9);
    EXPECT_NEAR(trace.backward_seconds, 0.020, 1e-9);
    EXPECT_NEAR(trace.after_backward_seconds, 0.004, 1e-9);
    ASSERT_EQ(trace.buckets.size(), 2u);
    EXPECT_EQ(trace.buckets[0].bytes, 4e6);
    EXPECT_NEAR(trace.buckets[0].ready_seconds, 0.010, 1e-9);
    EXPECT_NEAR(trace.buckets[1].ready_seconds, 0.020, 1e-9);
    // The first bucket's limit is 1 MiB, the second's 25.
    EXPECT_NEAR(trace.buckets[0].tensor_bytes, 4e6 - (1 << 20), 1);
    EXPECT_EQ(trace.buckets[1].tensor_bytes, 0);
  }
}

TEST(DdpTraces, WhatFollowsTheLastAllReduceIsNotCommunication) {
  RunTrace run = MakeDdpRun({});
  StepRecord& step = run.ranks[0].steps[2];
  step.backward_seconds += 0.005;  // 5 ms of copying
  step.step_seconds += 0.005;
  const auto traces = DdpTraces(run, {.warmup_steps = 10});
  ASSERT_TRUE(traces.ok());
  EXPECT_NEAR((*traces)[0].after_backward_seconds, 0.009, 1e-9);
  EXPECT_NEAR((*traces)[1].after_backward_seconds, 0.004, 1e-9);
}

TEST(DdpTraces, AnUnobservedEndIsThatOfBackward) {
  RunTrace run = MakeDdpRun({});
  for (RecordedTransfer& event : run.ranks[0].traffic[0].events) {
    event.end_seconds = std::numeric_limits<double>::quiet_NaN();
  }
  const auto traces = DdpTraces(run, {});
  ASSERT_TRUE(traces.ok());
  EXPECT_NEAR((*traces)[0].after_backward_seconds, 0.004, 1e-9);
}

TEST(DdpTraces, PassesOverWhatIsNotInBackward) {
  RunTrace run = MakeDdpRun({});
  RecordedTransfer check;
  check.op = "all_reduce";  // of --check_divergence_every, in the optimizer
  check.start_seconds = check.end_seconds = 0.033;
  RecordedTransfer buffers = check;
  buffers.op = "broadcast";
  buffers.start_seconds = 0.011;
  for (TrafficRecord& traffic : run.ranks[0].traffic) {
    traffic.events.push_back(check);
    traffic.events.push_back(buffers);
  }
  const auto traces = DdpTraces(run, {});
  ASSERT_TRUE(traces.ok());
  EXPECT_EQ((*traces)[0].buckets.size(), 2u);
}

TEST(DdpTraces, RefusesRunsWithoutTraffic) {
  const RunTrace run = MakeDdpRun({.traffic_steps = 0, .run_id = "bare"});
  const auto traces = DdpTraces(run, {});
  EXPECT_EQ(traces.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(traces.status().message()),
      testing::AllOf(HasSubstr("bare.jsonl"), HasSubstr("--traffic_steps")));
}

TEST(Rebucket, JoinsNeighboursUntilTheLimitIsReached) {
  const auto buckets =
      Rebucket(std::vector<ReadyBucket>{{2, 1.0}, {2, 2.0}, {2, 3.0}}, 3);
  ASSERT_EQ(buckets.size(), 2u);
  EXPECT_EQ(buckets[0].bytes, 4);
  EXPECT_EQ(buckets[0].ready_seconds, 2.0);
  EXPECT_EQ(buckets[1].bytes, 2);
  EXPECT_EQ(buckets[1].ready_seconds, 3.0);
}

TEST(Rebucket, CutsAsIfGradientsArrivedEvenly) {
  const auto buckets =
      Rebucket(std::vector<ReadyBucket>{{2, 1.0}, {9, 4.0}}, 3);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[0].bytes, 5);  // the open bucket, and a third
  EXPECT_EQ(buckets[0].ready_seconds, 2.0);
  EXPECT_EQ(buckets[1].ready_seconds, 3.0);
  EXPECT_EQ(buckets[2].bytes, 3);
  EXPECT_EQ(buckets[2].ready_seconds, 4.0);
}

TEST(Rebucket, NeverCutsATensor) {
  // A tensor of 7 of the 9 bytes.
  EXPECT_EQ(Rebucket(std::vector<ReadyBucket>{{9, 4.0, 7}}, 3).size(), 1u);
  // With a tensor of 4 bytes: two pieces of 4.5.
  EXPECT_EQ(Rebucket(std::vector<ReadyBucket>{{9, 4.0, 4}}, 3).size(), 2u);
}

TEST(Rebucket, KeepsAllBytes) {
  const std::vector<ReadyBucket> recorded = {{8.4e6, 0.5}, {3e5, 0.9}, {7, 1}};
  for (double limit : {1.0, 1e5, 1e6, 5e6, 1e9}) {
    double bytes = 0, last = 0;
    for (const ReadyBucket& bucket : Rebucket(recorded, limit)) {
      bytes += bucket.bytes;
      EXPECT_GE(bucket.ready_seconds, last);
      last = bucket.ready_seconds;
    }
    EXPECT_NEAR(bytes, 8.4e6 + 3e5 + 7, 1) << limit;
    EXPECT_DOUBLE_EQ(last, 1) << limit;
  }
}

}  // namespace
}  // namespace rankwise

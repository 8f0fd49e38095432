// Tests that a pipeline only reorders work: with any schedule, number of stages
// and boundaries, the losses and weights must equal those of one process that
// accumulates the same micro-batches, bit by bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "parallel/comm/test_process.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// 16 examples per step: an epoch has two full steps, and one with micro-batches
// of 4, 4 and 2 examples.
Flags With(const Flags& flags) {
  return Joined(flags, {"--train_size=42", "--test_size=10", "--batch_size=4",
                        "--epochs=2", "--seed=3"});
}

Trained TrainSingle(const Flags& flags) {
  return Train("single", 1, Joined(flags, {"--accumulate=4"}));
}

Trained TrainPipeline(int ranks, const Flags& flags) {
  return Train("pipeline", ranks, Joined(flags, {"--microbatches=4"}));
}

const Trained& Single() {
  static const auto* const kTrained = new Trained(TrainSingle(With({})));
  return *kTrained;
}

struct Case {
  std::string name;
  int ranks;
  Flags flags;
};

void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::vector<Case> Cases() {
  return {
      {"Naive", 2, {"--schedule=naive", "--split=time"}},
      {"Gpipe", 2, {"--schedule=gpipe", "--split=parameters"}},
      {"OneForwardOneBackward", 2, {"--schedule=1f1b"}},
      {"Interleaved", 2, {"--schedule=interleaved_1f1b", "--split=1,2,3"}},
      {"ZeroBubble", 2, {"--schedule=zero_bubble_h1", "--split=layers"}},
      {"ZeroBubbleWithTwiceTheMemory", 2, {"--schedule=zero_bubble_h2"}},
      {"Zbv", 2, {"--schedule=zbv"}},
      {"DualPipeV", 2, {"--schedule=dualpipev"}},
      {"PlannedForMeasuredTimes",
       2,
       {"--schedule=zero_bubble_auto", "--split=time"}},
      {"FourRanks", 4, {"--pp=4"}},
      {"RecomputedForwards", 2, {"--recompute"}},
      {"RecomputedForwardsOfSplitBackwards",
       2,
       {"--schedule=zbv", "--recompute"}},
      {"InOneProcess", 1, {"--devices=cpu,cpu"}},
      {"InOneProcessOverThreeSlots",
       1,
       {"--devices=cpu,cpu,cpu", "--schedule=gpipe", "--split=layers"}},
      {"InOneProcessWithPairs",
       1,
       {"--devices=cpu,cpu", "--schedule=dualpipev"}},
      {"InOneProcessWithSplitBackwards",
       1,
       {"--devices=cpu,cpu", "--schedule=zbv", "--recompute"}},
  };
}

class PipelineTest : public ::testing::TestWithParam<Case> {};

TEST_P(PipelineTest, IsBitEqualToOneProcess) {
  ASSERT_EQ(Single().losses[0].size(), 6u);
  ASSERT_EQ(Single().evaluations.size(), 2u);
  ExpectBitEqual(Single(),
                 TrainPipeline(GetParam().ranks, With(GetParam().flags)));
}

INSTANTIATE_TEST_SUITE_P(All, PipelineTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// A schedule file between 1F1B and GPipe, with whole and with split backwards.
std::string MixedSchedule() {
  const std::string file = FreshDir("csv") + "/mixed.csv";
  std::ofstream(file) << "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
                         "1F0,1F1,1I0,1F2,1W0,1I1,1W1,1F3,1I2,1W2,1I3,1W3\n";
  return file;
}

TEST(PipelineCsvTest, ASchedulesFileIsFollowed) {
  const std::string file = MixedSchedule();
  const Trained run = TrainPipeline(2, With({"--schedule=" + file}));
  ExpectBitEqual(Single(), run);
  std::map<int64_t, int64_t> peaks;  // by rank
  for (const auto& schedule : RecordsOf<ScheduleRecord>(run.record)) {
    EXPECT_EQ(schedule.schedule, file);
    if (schedule.step == 1) peaks[schedule.rank] = schedule.peak_activations;
  }
  EXPECT_EQ(peaks, (std::map<int64_t, int64_t>{{0, 3}, {1, 3}}));
}

TEST(PipelineCsvTest, AlsoInOneProcess) {
  ExpectBitEqual(Single(),
                 TrainPipeline(1, With({"--schedule=" + MixedSchedule(),
                                        "--devices=cpu,cpu"})));
}

// F and B may overlap; the last step of an epoch has fewer micro-batches.
TEST(PipelineCsvTest, TorchsDualPipeVIsFollowed) {
  const auto file = [](int p) {
    return "--schedule=" +
           Runfile("parallel/pipeline/schedule/testdata/dualpipev_p" +
                   std::to_string(p) + "_m" + std::to_string(2 * p) + ".csv");
  };
  ExpectBitEqual(Single(), TrainPipeline(2, With({file(2)})));
  // Eight stages require a model of at least eight layers.
  const Flags model = {
      "--model=gpt",          "--depth=8",       "--width=32",
      "--sequence_length=16", "--train_size=40", "--test_size=4",
      "--batch_size=2",       "--epochs=2",      "--seed=3",
      "--tied_head=false",    "--optimizer=sgd", "--lr=0.1"};
  ExpectBitEqual(
      Train("single", 1, Joined(model, {"--accumulate=8"})),
      Train("pipeline", 4, Joined(model, {"--microbatches=8", file(4)})));
}

// The running statistics of batch norm are part of the weights.
TEST(PipelineBatchNormTest, RecomputedForwardsMoveNoRunningStatistics) {
  Flags flags = With({"--model=simple_cnn_bn"});
  const Trained base = TrainSingle(flags);
  ASSERT_TRUE(base.weights.count("conv1.norm.running_mean"));
  ExpectBitEqual(base, TrainPipeline(2, flags));
  flags.push_back("--recompute");
  ExpectBitEqual(base, TrainPipeline(2, flags));
  flags.push_back("--devices=cpu,cpu");
  ExpectBitEqual(base, TrainPipeline(1, flags));
}

// conv2's output is bf16 under autocast, and sent as such.
TEST(PipelineBf16Test, IsBitEqualToOneProcessAndSendsHalfTheBytes) {
  const Flags bf16 = With({"--precision=bf16"});
  const Trained base = TrainSingle(bf16);
  ExpectBitEqual(base, TrainPipeline(2, Joined(bf16, {"--schedule=zbv"})));
  const Trained run = TrainPipeline(2, Joined(bf16, {"--schedule=1f1b"}));
  ExpectBitEqual(base, run);
  const auto records = RecordsOf<ScheduleRecord>(run.record);
  EXPECT_EQ(records.size(), 12u);
  for (const ScheduleRecord& record : records) {
    const int64_t examples = record.step % 3 == 0 ? 10 : 16;
    EXPECT_EQ(record.sent_bytes, examples * 4096 * 2);
    EXPECT_EQ(record.received_bytes, record.sent_bytes);
  }
}

TEST(PipelineLastStepTest, OneExampleInOneMicroBatch) {
  const Flags flags = {"--train_size=17", "--test_size=1", "--batch_size=4",
                       "--epochs=2"};
  ExpectBitEqual(TrainSingle(flags),
                 TrainPipeline(2, Joined(flags, {"--schedule=zbv"})));
}

// The third full step is the fourth step.
TEST(PipelinePlannedTest, PlansAgainOnceAndLearnsTheSame) {
  const Trained run = TrainPipeline(2, With({"--schedule=zero_bubble_auto:3"}));
  EXPECT_THAT(
      run.out,
      testing::ContainsRegex(
          "zero_bubble_auto:3: planned again after step 4 from measured "
          "times \\(F [0-9.]+, I [0-9.]+, W [0-9.]+ ms, messages "
          "[0-9.]+ ms\\): predicted bubble [0-9.]+ %"));
  ExpectBitEqual(Single(), run);
  for (const auto& record : RecordsOf<ScheduleRecord>(run.record)) {
    const auto& planned_for = record.planned_for_seconds;
    ASSERT_EQ(planned_for.empty(), record.step <= 4) << record.step;
    if (planned_for.empty()) continue;
    EXPECT_GT(planned_for.at("F"), 0);
    EXPECT_EQ(planned_for.count("message"), 1 - record.pipeline_rank);
  }
}

// Six full steps, and one of 10 examples. The boundary by FLOPs is after conv2,
// which outputs 4096 numbers per example.
Trained TrainSevenSteps(int ranks, const Flags& flags) {
  return TrainPipeline(
      ranks, Joined(flags, {"--batch_size=4", "--train_size=106", "--epochs=1",
                            "--eval=false"}));
}

// One measured and one simulated timeline per rank.
TEST(PipelineRecordsTest, TheLastFullStepsTimelineIsWrittenAtTheEnd) {
  const Trained run = TrainSevenSteps(2, {});
  std::map<std::pair<std::string, int64_t>, TimelineRecord> timelines;
  std::map<int64_t, int64_t> peaks;
  for (const auto& timeline : RecordsOf<TimelineRecord>(run.record))
    timelines[{timeline.origin, timeline.rank}] = timeline;
  for (const auto& memory : RecordsOf<MemoryRecord>(run.record))
    peaks[memory.rank] = memory.peak_host_bytes;
  EXPECT_EQ(peaks.size(), 2u);
  ASSERT_EQ(timelines.size(), 4u);
  for (const std::string origin : {"measured", "simulated"}) {
    const TimelineRecord& first = timelines[{origin, 0}];
    const TimelineRecord& last = timelines[{origin, 1}];
    EXPECT_EQ(first.step, 6) << "the seventh has fewer micro-batches";
    ASSERT_EQ(first.spans.size(), 8u);
    ASSERT_EQ(last.spans.size(), 8u);
    EXPECT_EQ(first.spans[0].start_seconds, 0);
    // A micro-batch reaches the second stage after the first has processed it,
    // and returns from there.
    EXPECT_GE(last.spans[0].start_seconds, first.spans[0].end_seconds);
    EXPECT_GE(first.spans[2].start_seconds, last.spans[1].end_seconds);
  }
}

TEST(PipelineRecordsTest, OnePerRankAndStepThatAddsUp) {
  const Trained run = TrainSevenSteps(2, {});
  std::set<std::pair<int64_t, int64_t>> seen;
  for (const auto& record : RecordsOf<ScheduleRecord>(run.record)) {
    SCOPED_TRACE("rank " + std::to_string(record.rank) + ", step " +
                 std::to_string(record.step));
    EXPECT_TRUE(seen.emplace(record.rank, record.step).second);
    EXPECT_EQ(record.schedule, "1f1b");
    EXPECT_EQ(record.pipeline_rank, record.rank);
    EXPECT_EQ(record.pipeline_size, 2);
    EXPECT_EQ(record.stages, 2);
    EXPECT_EQ(record.replicas, 1);
    const bool whole = record.step < 7;
    EXPECT_EQ(record.micro_batches, whole ? 4 : 3);
    EXPECT_EQ(record.sent_bytes, (whole ? 16 : 10) * 4096 * 4);
    EXPECT_EQ(record.received_bytes, record.sent_bytes);
    EXPECT_EQ(record.peak_activations, 2 - record.rank);
    EXPECT_GT(record.busy_seconds, 0);
    EXPECT_LE(record.busy_seconds, record.span_seconds);
    EXPECT_LE(record.span_seconds, record.schedule_seconds);
    EXPECT_LE(record.wait_seconds + record.busy_seconds,
              record.schedule_seconds);
    EXPECT_GT(record.exposed_transfer_seconds, 0);
    EXPECT_LE(record.exposed_transfer_seconds, record.wait_seconds);
    if (!whole) continue;
    EXPECT_EQ(std::isnan(record.predicted_seconds), record.step < 4);
    if (record.step < 4) continue;
    EXPECT_GT(record.predicted_seconds, 0);
    EXPECT_GT(record.predicted_wall_bubble, 0);
    EXPECT_LT(record.predicted_wall_bubble, 1);
    EXPECT_LE(record.predicted_span_bubble, record.predicted_wall_bubble);
  }
  EXPECT_EQ(seen.size(), 14u);
}

// Every stage has records like those of a rank; the stages compute one at a
// time.
TEST(PipelineRecordsTest, OneProcessTellsOfEveryRank) {
  const Trained run = TrainSevenSteps(1, {"--devices=cpu,cpu"});
  std::set<std::pair<int64_t, int64_t>> seen;
  std::map<int64_t, double> busy, total;  // by step
  std::set<std::pair<std::string, int64_t>> timelines;
  for (const auto& timeline : RecordsOf<TimelineRecord>(run.record)) {
    EXPECT_EQ(timeline.rank, 0);
    EXPECT_TRUE(
        timelines.emplace(timeline.origin, timeline.pipeline_rank).second);
    EXPECT_EQ(timeline.step, 6);
    EXPECT_EQ(timeline.spans.size(), 8u);
  }
  for (const auto& record : RecordsOf<ScheduleRecord>(run.record)) {
    EXPECT_TRUE(seen.emplace(record.pipeline_rank, record.step).second);
    EXPECT_EQ(record.pipeline_size, 2);
    EXPECT_EQ(record.peak_activations, 2 - record.pipeline_rank);
    EXPECT_EQ(record.sent_bytes, (record.step < 7 ? 16 : 10) * 4096 * 4);
    EXPECT_GT(record.busy_seconds, 0);
    EXPECT_EQ(std::isnan(record.predicted_seconds),
              record.step < 4 || record.step == 7);
    busy[record.step] += record.busy_seconds;
    total[record.step] = std::max(total[record.step], record.schedule_seconds);
  }
  EXPECT_EQ(seen.size(), 14u);
  EXPECT_EQ(timelines.size(), 4u);
  for (const auto& [step, seconds] : busy) EXPECT_LE(seconds, total[step]);
}

}  // namespace
}  // namespace rankwise

#include "trainers/stages/pipeline_meter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "parallel/comm/test_ranks.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr int kMicroBatches = 4;

// Returns an executor's measurement of `schedule` on `rank` if a forward takes
// 1 s, a backward 2 s and messages no time, after `late` seconds of waiting
// before the first action.
ExecutorStep Measured(const Schedule& schedule, int rank, double late) {
  const Timeline timeline = *Simulate(schedule, {{StageCosts()}, {}});
  ExecutorStep step;
  step.spans = timeline.ranks[static_cast<size_t>(rank)];
  for (Span& span : step.spans) {
    span.start_seconds += 100 + late;
    span.end_seconds += 100 + late;
  }
  step.start_seconds = 100;
  step.end_seconds = 100 + late + MeasureBubbles(timeline).wall_seconds;
  step.peak_activations = 2 - rank;
  return step;
}

std::vector<ExecutorStep> MeasuredBy(const Schedule& schedule,
                                     const std::vector<int>& ranks,
                                     double late) {
  std::vector<ExecutorStep> steps;
  for (int rank : ranks) steps.push_back(Measured(schedule, rank, late));
  return steps;
}

class PipelineMeterTest : public ::testing::Test {
 protected:
  // Adds `steps` steps to both ranks' meters and then calls `body`.
  void Run(
      int steps, double late,
      const std::function<void(PipelineMeter&, const Worker&,
                               const std::vector<ScheduleRecord>&)>& body) {
    OnRanks(2, [&](Communicator& comm) {
      const Schedule schedule = *AddCommunication(*MakeSchedule(
          "1f1b", {.num_ranks = 2, .num_micro_batches = kMicroBatches}));
      Worker worker;
      worker.env = comm.env();
      worker.comm = &comm;
      worker.layout = *LayOutRanks({{"pp", 2}}, 2);
      PipelineMeter meter(schedule, {0, 0}, {}, worker, {comm.rank()});
      std::vector<ScheduleRecord> records;
      for (int step = 1; step <= steps; ++step) {
        auto record =
            meter.Add(step, schedule, MeasuredBy(schedule, {comm.rank()}, late),
                      PipelineMeter::IsDue(step));
        ASSERT_TRUE(record.ok()) << record.status();
        records.push_back(record->front());
      }
      body(meter, worker, records);
    });
  }
};

TEST_F(PipelineMeterTest, PredictsFromTheThirdStepOn) {
  Run(5, 0, [](PipelineMeter&, const Worker& worker, const auto& records) {
    for (int i : {0, 1, 2}) {
      EXPECT_TRUE(
          std::isnan(records[static_cast<size_t>(i)].predicted_seconds));
    }
    // 1F1B: (m + p - 1) (F + B) of which m (F + B) is work.
    EXPECT_NEAR(records[3].predicted_seconds, 15, 1e-9);
    EXPECT_NEAR(records[3].predicted_wall_bubble, 0.2, 1e-9);
    EXPECT_NEAR(records[4].busy_seconds, 12, 1e-9);
    EXPECT_EQ(records[4].pipeline_rank, worker.env.rank);
    EXPECT_EQ(records[4].micro_batches, kMicroBatches);
  });
}

TEST_F(PipelineMeterTest, TheSummaryShowsMeasuredBesidePredicted) {
  Run(4, /*late=*/5, [](PipelineMeter& meter, const Worker&, const auto&) {
    const auto summary = meter.Summary();
    ASSERT_TRUE(summary.ok()) << summary.status();
    // 12 s of work in 20 s; the prediction is 15 s.
    EXPECT_THAT(*summary, HasSubstr("measured:  20000.00 ms, bubble 40.0 %"));
    EXPECT_THAT(*summary, HasSubstr("predicted: 15000.00 ms, bubble 20.0 %"));
    EXPECT_THAT(*summary, HasSubstr("60.0 %"));  // utilisation
  });
}

TEST_F(PipelineMeterTest, AnotherScheduleIsPredictedFromTheSameCosts) {
  Run(3, 0, [](PipelineMeter& meter, const Worker& worker, const auto&) {
    const Schedule naive = *AddCommunication(*MakeSchedule(
        "naive", {.num_ranks = 2, .num_micro_batches = kMicroBatches}));
    ASSERT_EQ(meter.costs().stages.size(), 2u);
    EXPECT_NEAR(meter.costs().stages[1].backward_seconds, 2, 1e-9);
    ASSERT_TRUE(meter.Follow(naive).ok());
    EXPECT_THAT(*meter.Summary(), HasSubstr("too few"));
    const auto records =
        meter.Add(4, naive, MeasuredBy(naive, {worker.env.rank}, 0), false);
    ASSERT_TRUE(records.ok()) << records.status();
    EXPECT_EQ(records->front().schedule, "naive");
    EXPECT_NEAR(records->front().predicted_seconds, 2 * 3 * kMicroBatches,
                1e-9);
    const auto summary = meter.Summary();
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_THAT(*summary, HasSubstr("medians over 1 steps"));
    EXPECT_THAT(*summary, HasSubstr("measured:  24000.00 ms, bubble 50.0 %"));
    EXPECT_THAT(*summary, HasSubstr("predicted: 24000.00 ms, bubble 50.0 %"));
  });
}

TEST_F(PipelineMeterTest, TooFewStepsAreSaidToBeTooFew) {
  Run(1, 0, [](PipelineMeter& meter, const Worker&, const auto&) {
    const auto summary = meter.Summary();
    ASSERT_TRUE(summary.ok());
    EXPECT_THAT(*summary, HasSubstr("too few"));
  });
}

TEST_F(PipelineMeterTest, TransfersAreExposedNoLongerThanTheyTake) {
  OnRanks(2, [&](Communicator& comm) {
    const Schedule schedule = *AddCommunication(*MakeSchedule(
        "1f1b", {.num_ranks = 2, .num_micro_batches = kMicroBatches}));
    Worker worker;
    worker.env = comm.env();
    worker.comm = &comm;
    worker.layout = *LayOutRanks({{"pp", 2}}, 2);
    PipelineMeter meter(schedule, {0, 0},
                        {.alpha_seconds = 0.5, .beta_seconds_per_byte = 0.001},
                        worker, {comm.rank()});
    std::vector<ExecutorStep> steps = MeasuredBy(schedule, {comm.rank()}, 0);
    // In flight for 1.5 s each, and one that had already arrived.
    for (double seconds : {4.0, 0.25})
      steps[0].waits.push_back({1000, seconds});
    steps[0].waits.push_back({0, 0});
    const auto records =
        meter.Add(1, schedule, steps, /*exchange_costs=*/false);
    ASSERT_TRUE(records.ok()) << records.status();
    const ScheduleRecord* record = &records->front();
    EXPECT_NEAR(record->wait_seconds, 4.25, 1e-12);
    EXPECT_NEAR(record->exposed_transfer_seconds, 1.75, 1e-12);
  });
}

TEST_F(PipelineMeterTest, TimelinesCountFromTheFirstStartOfAnyRank) {
  Run(4, /*late=*/5, [](PipelineMeter& meter, const Worker& worker, auto&) {
    const auto timelines = meter.Timelines();
    ASSERT_TRUE(timelines.ok()) << timelines.status();
    ASSERT_EQ(timelines->size(), 2u);
    const double forward_elsewhere = worker.env.rank;
    for (const TimelineRecord& timeline : *timelines) {
      EXPECT_EQ(timeline.rank, worker.env.rank);
      EXPECT_EQ(timeline.step, 4);
      EXPECT_EQ(timeline.schedule, "1f1b");
      ASSERT_EQ(timeline.spans.size(), 2u * kMicroBatches);
      EXPECT_EQ(timeline.spans[0].action, "F");
      EXPECT_EQ(timeline.spans[0].stage, worker.env.rank);
      EXPECT_NEAR(timeline.spans[0].start_seconds, forward_elsewhere, 1e-9);
      EXPECT_NEAR(timeline.spans[0].end_seconds, forward_elsewhere + 1, 1e-9);
    }
    EXPECT_EQ((*timelines)[0].origin, "measured");
    EXPECT_EQ((*timelines)[1].origin, "simulated");
  });
}

// One process that runs both ranks reports the same as two processes.
TEST(LocalPipelineMeterTest, EveryRankHasItsRecordsAndItsRow) {
  const Schedule schedule = *AddCommunication(*MakeSchedule(
      "1f1b", {.num_ranks = 2, .num_micro_batches = kMicroBatches}));
  const Worker worker;
  PipelineMeter meter(schedule, {0, 0}, {}, worker, {0, 1});
  for (int step = 1; step <= 4; ++step) {
    const auto records =
        meter.Add(step, schedule, MeasuredBy(schedule, {0, 1}, 0),
                  PipelineMeter::IsDue(step));
    ASSERT_TRUE(records.ok()) << records.status();
    ASSERT_EQ(records->size(), 2u);
    for (int rank : {0, 1}) {
      const ScheduleRecord& record = (*records)[static_cast<size_t>(rank)];
      EXPECT_EQ(record.pipeline_rank, rank);
      EXPECT_EQ(record.pipeline_size, 2);
      EXPECT_EQ(record.peak_activations, 2 - rank);
      // One thread computes for both: a rank waits during the other's turn.
      EXPECT_NEAR(record.wait_seconds, 3, 1e-9);
      EXPECT_EQ(std::isnan(record.predicted_seconds), step < 4);
    }
  }
  const auto summary = meter.Summary();
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_THAT(*summary, HasSubstr("measured:  15000.00 ms, bubble 20.0 %"));
  EXPECT_THAT(*summary, HasSubstr("predicted: 15000.00 ms, bubble 20.0 %"));
  const auto timelines = meter.Timelines();
  ASSERT_TRUE(timelines.ok()) << timelines.status();
  ASSERT_EQ(timelines->size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*timelines)[i].rank, 0);
    EXPECT_EQ((*timelines)[i].pipeline_rank, static_cast<int64_t>(i / 2));
    EXPECT_NEAR((*timelines)[i].spans[0].start_seconds,
                static_cast<double>(i / 2), 1e-9);
  }
}

TEST(LocalPipelineMeterTest, CostsAreExchangedInFewSteps) {
  std::vector<int64_t> due;
  for (int64_t step = 1; step <= 30; ++step) {
    if (PipelineMeter::IsDue(step)) due.push_back(step);
  }
  EXPECT_EQ(due, (std::vector<int64_t>{3, 6, 12, 24}));
}

}  // namespace
}  // namespace rankwise

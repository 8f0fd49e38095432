#include "comm_bench/modes/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/control.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/test_ranks.h"
#include "records/record_json.h"
#include "records/record_writer.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr double kGapSeconds = 0.03;

RecordedTransfer Event(const std::string& op, int64_t count, double start,
                       double end, int64_t peer = -1,
                       const std::vector<int64_t>& ranks = {}) {
  RecordedTransfer event;
  event.op = op;
  event.count = count;
  event.bytes = count * 4;
  event.dtype = "float32";
  event.peer = peer;
  event.ranks = ranks;
  event.start_seconds = start;
  event.end_seconds = end;
  if (op == "send" || op == "recv") event.wait_start_seconds = start;
  return event;
}

// Writes one run with a rank per list; step 3 is recorded.
std::string FileOf(const std::vector<std::vector<RecordedTransfer>>& ranks) {
  const std::string path =
      testing::TempDir() + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
  const auto writer = RecordWriter::Open(path).value();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    RunRecord run;
    run.run_id = "run";
    run.binary = "ddp";
    run.backend = "gloo";
    run.rank = static_cast<int64_t>(rank);
    run.world_size = static_cast<int64_t>(ranks.size());
    TrafficRecord traffic;
    traffic.rank = run.rank;
    traffic.step = 3;
    traffic.events = ranks[rank];
    traffic.step_seconds = 1;
    traffic.exposed_comm_seconds = 0.5;
    EXPECT_TRUE(writer->Write(Record(run)).ok());
    EXPECT_TRUE(writer->Write(Record(traffic)).ok());
  }
  return path;
}

ReplayResult ReplayOn(Communicator& comm, const std::string& file,
                      int64_t iterations) {
  const auto control = MakeGroupControl(comm.process_group());
  const auto traffic = ReadTraffic(file, comm.world_size());
  EXPECT_TRUE(traffic.ok()) << traffic.status();
  const auto result = Replay(comm, *control, *traffic, iterations);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ReplayResult();
}

// Returns the calls over the process groups, except those of the control.
std::vector<std::string> Calls(Communicator& comm) {
  std::vector<std::string> calls;
  for (const CommEvent& event : comm.TakeTraffic()) {
    if (event.dtype == "float32") calls.push_back(event.op);
  }
  return calls;
}

TEST(ReplayTest, BucketsAndABroadcastAsOftenAsAskedFor) {
  const std::vector<RecordedTransfer> rank = {
      Event("broadcast", 5, 0.1, 0.11, /*peer=*/1),
      Event("all_reduce", 1000, 0.2, 0.24), Event("all_reduce", 10, 0.22, 0.25),
      Event("all_gather", 3, 0.23, 0.26)};
  const std::string file = FileOf({rank, rank});
  OnRanks(2, [&](Communicator& comm) {
    comm.StartTraffic();
    const ReplayResult result = ReplayOn(comm, file, 2);
    const auto calls = Calls(comm);
    // One repetition is warm-up, two of each way are measured.
    ASSERT_EQ(calls.size(), 5 * rank.size());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(calls[i], rank[i % rank.size()].op);
    }
    EXPECT_EQ(result.trainer, "ddp");
    EXPECT_THAT(result.steps, ElementsAre(3));
    EXPECT_THAT(result.calls, ElementsAre(4, 4));
    EXPECT_THAT(result.bytes, ElementsAre(4072, 4072));
    EXPECT_EQ(result.iterations, 2);
    EXPECT_EQ(result.exposed.slowest.value, 0.5);
    EXPECT_GT(result.back_to_back.slowest.value, 0);
    EXPECT_GE(result.gaps.slowest.value, result.gaps.ranks[0].value);
    EXPECT_THAT(result.own_gaps.seconds, SizeIs(2));
    EXPECT_THAT(result.own_back_to_back.seconds, SizeIs(2));
    EXPECT_THAT(result.own_back_to_back.start_seconds, SizeIs(2));
    EXPECT_FALSE(result.stopped);
    EXPECT_EQ(result.own_gaps.collective, "replay");
    EXPECT_EQ(result.own_gaps.layer, "gaps");
    EXPECT_EQ(result.own_back_to_back.layer, "back_to_back");
    EXPECT_EQ(result.own_gaps.rank, comm.rank());
    EXPECT_EQ(result.own_gaps.group_size, 2);
    EXPECT_EQ(result.own_gaps.end, "counted");
    EXPECT_TRUE(ParseRecord(ToJsonLine(result.own_gaps)).ok());
  });
}

// Rank 0 computes, sends, and waits for the answer, before which rank 1
// computes. Rank 0's wait includes rank 1's gap.
TEST(ReplayTest, AWaitHoldsThePeersComputation) {
  const double sent = kGapSeconds, answered = 2 * kGapSeconds;
  std::vector<std::vector<RecordedTransfer>> ranks(2);
  ranks[0] = {Event("barrier", 0, 0, 0.001), Event("send", 100, sent, sent, 1),
              Event("recv", 200, sent, answered, 1)};
  ranks[1] = {Event("barrier", 0, 0, 0.001), Event("recv", 100, 0, sent, 0),
              Event("send", 200, answered, answered, 0)};
  const std::string file = FileOf(ranks);
  OnRanks(2, [&](Communicator& comm) {
    const ReplayResult result = ReplayOn(comm, file, 3);
    ASSERT_EQ(result.gaps.ranks.size(), 2u);
    for (const Estimate& seconds : result.gaps.ranks) {
      EXPECT_GT(seconds.value, 0.8 * kGapSeconds)
          << "waits for the other's gap";
    }
    EXPECT_LT(result.back_to_back.slowest.value, result.gaps.slowest.value);
    EXPECT_THAT(FormatReplay(result), HasSubstr("replay of ddp, ranks 2"));
  });
}

// Communication in flight during a gap does not count, and gaps do not count as
// communication.
TEST(ReplayTest, GapsAreKeptAndNotCounted) {
  TrafficRecord record;
  record.events = {Event("all_reduce", 10, 0.5, 0.501),
                   Event("all_reduce", 10, 0.5 + kGapSeconds, 0.6)};
  OnRanks(2, [&](Communicator& comm) {
    StepReplay replay(record, /*lead_in_seconds=*/0.5,
                      {{{}, comm.process_group()}}, comm.device());
    for (bool keep_gaps : {true, false}) {
      comm.StartTraffic();
      const double seconds = replay.Run(keep_gaps);
      const auto events = comm.TakeTraffic();
      ASSERT_EQ(events.size(), 2u);
      const double apart =
          static_cast<double>(events[1].start_ns - events[0].start_ns) * 1e-9;
      if (!keep_gaps) continue;
      EXPECT_GE(apart, kGapSeconds);
      EXPECT_GT(seconds, 0);
    }
  });
}

TEST(ReplayTest, GroupsThatShareRanksAndRanksInNone) {
  std::vector<std::vector<RecordedTransfer>> ranks(3);
  ranks[0] = {Event("all_reduce", 4, 0, 0.1, -1, {0, 1})};
  ranks[1] = {Event("all_reduce", 4, 0, 0.1, -1, {0, 1}),
              Event("send", 6, 0.2, 0.3, 2, {2, 1})};
  ranks[2] = {Event("recv", 6, 0.2, 0.3, 1, {2, 1})};
  const std::string file = FileOf(ranks);
  OnRanks(3, [&](Communicator& comm) {
    EXPECT_THAT(ReplayOn(comm, file, 1).calls, ElementsAre(1, 2, 1));
  });
}

// Communication of one rank of two tensor-parallel replicas: activations along
// tp, gradients along dp.
std::vector<RecordedTransfer> HybridStep(int64_t rank) {
  const std::vector<int64_t> tp = {rank / 2 * 2, rank / 2 * 2 + 1};
  const std::vector<int64_t> dp = {rank % 2, rank % 2 + 2};
  const int64_t replica = rank / 2 + 1;  // replicas may differ in size
  return {Event("all_gather", 4 * replica, 0, 0.001, -1, tp),
          Event("reduce_scatter", 8 * replica, 0.002, 0.003, -1, tp),
          Event("all_reduce", 100, 0.004, 0.009, -1, dp),
          Event("all_to_all", 6 * replica, 0.005, 0.006, -1, tp),
          Event("all_reduce", 1, 0.01, 0.011)};
}

TEST(ReplayTest, LinesAlongTwoAxesOfAMeshAtTheSameTime) {
  const std::string file =
      FileOf({HybridStep(0), HybridStep(1), HybridStep(2), HybridStep(3)});
  OnRanks(4, [&](Communicator& comm) {
    comm.StartTraffic();
    EXPECT_THAT(ReplayOn(comm, file, 1).calls, ElementsAre(5, 5, 5, 5));
    std::vector<CommEvent> made;
    for (CommEvent& event : comm.TakeTraffic()) {
      if (event.dtype == "float32") made.push_back(std::move(event));
    }
    const auto recorded = HybridStep(comm.rank());
    ASSERT_EQ(made.size(), 3 * recorded.size());
    for (size_t i = 0; i < made.size(); ++i) {
      const RecordedTransfer& expected = recorded[i % recorded.size()];
      EXPECT_EQ(made[i].op, expected.op);
      EXPECT_EQ(made[i].count, expected.count);
      EXPECT_THAT(made[i].ranks, ElementsAreArray(expected.ranks));
    }
  });
}

TEST(FormatReplayTest, EveryMedianHasItsInterval) {
  const double none = std::nan("");
  ReplayResult result;
  result.trainer = "ddp";
  result.steps = {3};
  result.calls = {4};
  result.bytes = {2'000'000};
  result.iterations = 20;
  result.step = {{{0.02, none, none}}, {0.02, none, none}};  // one step
  result.exposed = {{{0.01, 0.009, 0.012}}, {0.01, 0.009, 0.012}};
  result.gaps = {{{0.004, 0.003, 0.0045}}, {0.004, none, none}};
  result.back_to_back = {{{0.003, 0.0028, 0.0031}}, {0.003, 0.0028, 0.0031}};
  EXPECT_THAT(
      FormatReplay(result),
      HasSubstr(
          "     0         4     2.000          20.000            10.000   4.0"
          "00            6.000         3.000\n"
          "    +-                                   -             2.000   1.0"
          "00            2.236         0.200\n"
          "  slowest rank                      20.000            10.000   4.0"
          "00            6.000         3.000\n"
          "    +-                                   -             2.000      "
          " -                -         0.200\n"));
}

// There are too few recorded steps for an interval, but enough repetitions.
TEST(ReplayTest, IntervalsAreThoseOfTheIterations) {
  const std::vector<RecordedTransfer> rank = {
      Event("all_reduce", 1000, 0.001, 0.002)};
  const std::string file = FileOf({rank, rank});
  OnRanks(2, [&](Communicator& comm) {
    const ReplayResult result = ReplayOn(comm, file, 20);
    EXPECT_TRUE(std::isnan(result.exposed.ranks[0].reach()));
    const Estimate own = EstimateMedian(result.own_back_to_back.seconds);
    const Estimate& told = result.back_to_back.ranks[comm.rank()];
    EXPECT_EQ(told.low, own.low);
    EXPECT_EQ(told.high, own.high);
    EXPECT_LE(told.low, told.value);
    EXPECT_GE(told.high, told.value);
  });
}

TEST(ReplayTest, ARecordSaysThatItWasStopped) {
  const std::vector<RecordedTransfer> rank = {
      Event("all_reduce", 10, 0.001, 0.002)};
  const std::string file = FileOf({rank, rank});
  OnRanks(2, [&](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    const auto traffic = ReadTraffic(file, comm.world_size());
    ASSERT_TRUE(traffic.ok()) << traffic.status();
    std::atomic<bool> stop{false};
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      stop = true;
    });
    const auto result = Replay(comm, *control, *traffic, 1'000'000, &stop);
    stopper.join();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->stopped);
    EXPECT_EQ(result->own_gaps.end, "interrupted");
    EXPECT_EQ(result->own_back_to_back.end, "interrupted");
  });
}

TEST(ReplayTest, StopsBeforeTheFirstIteration) {
  const std::string file = FileOf({{}, {}});
  OnRanks(2, [&](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    const std::atomic<bool> stop{comm.rank() == 1};
    const auto traffic = ReadTraffic(file, comm.world_size());
    ASSERT_TRUE(traffic.ok()) << traffic.status();
    const auto result = Replay(comm, *control, *traffic, 20, &stop);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
  });
}

}  // namespace
}  // namespace rankwise::comm_bench

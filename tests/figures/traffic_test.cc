// Tests the communication recorded by trainers with --traffic_steps.

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// Returns the records by (step, rank).
std::map<std::pair<int64_t, int64_t>, TrafficRecord> TrafficIn(
    const std::string& path) {
  std::map<std::pair<int64_t, int64_t>, TrafficRecord> records;
  for (const auto& traffic : RecordsOf<TrafficRecord>(path)) {
    EXPECT_TRUE(
        records.emplace(std::pair(traffic.step, traffic.rank), traffic).second);
  }
  return records;
}

std::set<int64_t> StepsOf(
    const std::map<std::pair<int64_t, int64_t>, TrafficRecord>& records,
    int64_t rank) {
  std::set<int64_t> steps;
  for (const auto& [key, record] : records) {
    if (key.second == rank) steps.insert(key.first);
  }
  return steps;
}

int64_t BytesOf(const Weights& weights) {
  int64_t bytes = 0;
  for (const auto& entry : weights) {
    bytes += static_cast<int64_t>(entry.second.nbytes());
  }
  return bytes;
}

Flags With(const Flags& more) {
  return Joined(more, {"--train_size=48", "--test_size=4", "--batch_size=4",
                       "--epochs=1", "--eval=false"});
}

TEST(TrafficTest, DdpsBucketsHoldAllGradientsAndLossesStay) {
  const Trained plain = Train("ddp", 2, With({}));
  const Trained run = Train("ddp", 2, With({"--traffic_steps=2"}));
  EXPECT_EQ(plain.losses, run.losses);
  const auto records = TrafficIn(run.record);
  for (int64_t rank : {0, 1}) {
    EXPECT_EQ(StepsOf(records, rank), (std::set<int64_t>{3, 4}));
  }
  for (const auto& [key, record] : records) {
    int64_t bytes = 0;
    for (const RecordedTransfer& event : record.events) {
      if (event.op != "all_reduce") continue;
      EXPECT_EQ(event.dtype, "float32");
      EXPECT_EQ(event.bytes, event.count * 4);
      EXPECT_EQ(event.group, "") << "an axis of all ranks";
      EXPECT_GT(event.start_seconds, 0);
      EXPECT_GE(event.end_seconds, event.start_seconds);
      EXPECT_LT(event.end_seconds, record.step_seconds);
      bytes += event.bytes;
    }
    EXPECT_EQ(bytes, BytesOf(run.weights));
    EXPECT_GT(record.exposed_comm_seconds, 0);
    EXPECT_LT(record.exposed_comm_seconds, record.step_seconds);
  }
}

// Returns the bytes of the messages of kind `op`, in order.
std::vector<int64_t> MessagesOf(const TrafficRecord& record,
                                const std::string& op) {
  std::vector<int64_t> bytes;
  for (const RecordedTransfer& event : record.events) {
    if (event.op == op) bytes.push_back(event.bytes);
  }
  return bytes;
}

TEST(TrafficTest, WhatOneStageSendsTheOtherReceives) {
  const Trained run =
      Train("pipeline", 2, With({"--microbatches=3", "--traffic_steps=2"}));
  const auto records = TrafficIn(run.record);
  ASSERT_EQ(records.size(), 4u);
  for (int64_t step : {3, 4}) {
    const TrafficRecord& first = records.at({step, 0});
    const TrafficRecord& last = records.at({step, 1});
    EXPECT_EQ(MessagesOf(first, "send"), MessagesOf(last, "recv"));
    EXPECT_EQ(MessagesOf(last, "send"), MessagesOf(first, "recv"));
    // The boundary is after conv2, which outputs 4096 numbers per example.
    const std::vector<int64_t> activations(3, 4 * 4096 * 4);
    EXPECT_EQ(MessagesOf(first, "send"), activations);
    for (const TrafficRecord* record : {&first, &last}) {
      EXPECT_EQ(record->events.size(), 7u) << "with the loss, last";
      for (const RecordedTransfer& event : record->events) {
        EXPECT_EQ(event.peer, 1 - record->rank);
        EXPECT_TRUE(event.ranks.empty());
        EXPECT_GE(event.wait_start_seconds, event.start_seconds);
        EXPECT_GE(event.end_seconds, event.wait_start_seconds);
      }
      EXPECT_GT(record->exposed_comm_seconds, 0);
    }
  }
}

TEST(TrafficTest, RefusedWhereNothingIsCommunicatedOrWritten) {
  const std::string record = "--record=" + FreshDir("refused") + "/run.jsonl";
  for (const std::string trainer : {"single", "model_parallel"}) {
    const Finished run =
        RunTrainer(trainer, With({"--traffic_steps=2", record}));
    EXPECT_EQ(run.code, 2);
    EXPECT_NE(run.err.find("--traffic_steps=2: " + trainer +
                           " in one process communicates nothing"),
              std::string::npos)
        << run.err;
  }
  const Finished run = RunTrainer("ddp", With({"--traffic_steps=2"}));
  EXPECT_EQ(run.code, 2);
  EXPECT_NE(run.err.find("--traffic_steps=2: needs --record"),
            std::string::npos)
      << run.err;
}

}  // namespace
}  // namespace rankwise

#include "parallel/comm/flight_recorder_summary.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Json = nlohmann::json;

// As FlightRecorder::dump_json writes it.
Json Entry(int number, const std::string& name, const std::string& state,
           const std::vector<int>& shape = {4}, int group = 0,
           const std::string& group_name = "all") {
  return {{"pg_id", group},
          {"process_group", {group_name, "undefined"}},
          {"collective_seq_id", number},
          {"p2p_seq_id", 0},
          {"profiling_name", "nccl:" + name},
          {"input_sizes", {shape}},
          {"input_dtypes", {"Float"}},
          {"state", state},
          {"retired", state == "completed"},
          {"is_p2p", false}};
}

std::string Dump(const std::vector<Json>& entries) {
  const Json dump = {{"version", "2.10"},
                     {"pg_config",
                      {{"all", {{"name", "all"}, {"ranks", "[0, 1, 2]"}}},
                       {"dp", {{"name", "dp"}, {"ranks", "[0, 2]"}}}}},
                     {"entries", entries}};
  return dump.dump();
}

TEST(FlightRecorderSummaryTest, NamesWhoHasCalledAndWhoHasNotCome) {
  EXPECT_THAT(
      SummarizeFlightRecorders(
          {{0, Dump({Entry(1, "barrier", "completed"),
                     Entry(2, "all_reduce", "scheduled")})},
           {1, Dump({Entry(1, "barrier", "completed")})},
           {2, Dump({Entry(1, "barrier", "completed"),
                     Entry(2, "all_reduce", "scheduled")})}},
          3),
      ElementsAre(
          "group all (ranks 0, 1, 2): #1 is done everywhere; #2: ranks "
          "0, 2 have called all_reduce of [[4]] float32; rank 1 has not "
          "come to it, its last is #1, barrier of [[4]] float32"));
}

TEST(FlightRecorderSummaryTest, TellsGroupsApart) {
  const Json dp = Entry(1, "all_reduce", "started", {2, 3}, 1, "dp");
  EXPECT_THAT(
      SummarizeFlightRecorders(
          {{0, Dump({Entry(1, "barrier", "completed"), dp})},
           {1, Dump({Entry(1, "barrier", "completed")})},
           {2, Dump({Entry(1, "barrier", "completed")})}},
          3),
      ElementsAre("group dp (ranks 0, 2): #1: rank 0 is "
                  "in all_reduce of [[2,3]] float32; rank 2 has not come to "
                  "it, nor called anything"));
}

TEST(FlightRecorderSummaryTest, SaysThatCallsDiffer) {
  const std::vector<std::string> kinds =
      SummarizeFlightRecorders({{0, Dump({Entry(1, "all_reduce", "started")})},
                                {1, Dump({Entry(1, "broadcast", "started")})}},
                               2);
  EXPECT_THAT(kinds, ElementsAre("group all (ranks 0, 1, 2): #1: rank 0 is in "
                                 "all_reduce of [[4]] float32; rank 1 is in "
                                 "broadcast of [[4]] float32; these are "
                                 "different calls"));
  EXPECT_THAT(SummarizeFlightRecorders(
                  {{0, Dump({Entry(1, "all_reduce", "started")})},
                   {1, Dump({Entry(1, "all_reduce", "started", {5})})}},
                  2)[0],
              ::testing::HasSubstr("these are different calls"));
  // A root's scatter has another shape than the others'.
  EXPECT_THAT(SummarizeFlightRecorders(
                  {{0, Dump({Entry(1, "scatter", "started")})},
                   {1, Dump({Entry(1, "scatter", "started", {8})})}},
                  2)[0],
              ::testing::Not(::testing::HasSubstr("different")));
}

TEST(FlightRecorderSummaryTest, NamesMessagesUnderWayAndRanksUnheardOf) {
  Json message = Entry(0, "recv 0<-1", "scheduled", {1000});
  message["is_p2p"] = true;
  EXPECT_THAT(SummarizeFlightRecorders({{0, Dump({message})}, {1, "{}"}}, 3),
              ElementsAre("group all (ranks 0, 1, 2): rank 0 has not finished "
                          "recv 0<-1 of [[1000]] float32",
                          "no record of rank 2"));
}

TEST(FlightRecorderSummaryTest, WhatHasLeftTheBufferIsDone) {
  EXPECT_THAT(SummarizeFlightRecorders(
                  {{0, Dump({Entry(98, "all_reduce", "completed")})},
                   {1, Dump({Entry(97, "all_reduce", "completed"),
                             Entry(98, "all_reduce", "completed")})}},
                  2),
              ElementsAre("all that was called is done"));
}

TEST(FlightRecorderSummaryTest, AnEmptyRecordIsNotTakenForAllBeingDone) {
  EXPECT_THAT(SummarizeFlightRecorders({{0, Dump({})}}, 1),
              ElementsAre(::testing::HasSubstr("nothing is recorded")));
}

// Of two processes of torch 2.11 over Gloo, of which the second never came to
// the third collective; what no reader looks at is left out.
TEST(FlightRecorderSummaryTest, ReadsGloosRecords) {
  const std::string done =
      R"({"collective_seq_id":1,"input_dtypes":["Float"],"input_sizes":[[4]],
      "is_p2p":false,"op_id":1,"p2p_seq_id":0,"pg_id":0,
      "process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce",
      "record_id":0,"retired":true,"state":"scheduled"},
      {"collective_seq_id":2,"input_dtypes":[],"input_sizes":[],
      "is_p2p":false,"op_id":2,"p2p_seq_id":0,"pg_id":0,
      "process_group":["0","default_pg"],"profiling_name":"gloo:barrier",
      "record_id":1,"retired":true,"state":"scheduled"})";
  const std::string open =
      R"(,{"collective_seq_id":3,"input_dtypes":["Float"],
      "input_sizes":[[2,3]],"is_p2p":false,"op_id":4,"p2p_seq_id":0,"pg_id":0,
      "process_group":["0","default_pg"],"profiling_name":"gloo:all_reduce",
      "record_id":3,"retired":false,"state":"scheduled"})";
  const std::string head =
      R"({"version":"2.10","pg_config":{"":{"desc":"","name":"",
      "ranks":"[]"}},"entries":[)";
  EXPECT_THAT(
      SummarizeFlightRecorders(
          {{0, head + done + open + "]}"}, {1, head + done + "]}"}}, 2),
      ElementsAre("group 0: #2 is done everywhere; #3: rank 0 has called "
                  "all_reduce of [[2,3]] float32; rank 1 has not come to it, "
                  "its last is #2, barrier"));
}

TEST(FlightRecorderSummaryTest, TrimsToTheLastCallsOfEachGroup) {
  std::vector<Json> entries;
  entries.push_back(Entry(1, "all_reduce", "completed", {4}, 1, "dp"));
  for (int i = 1; i <= 50; ++i) {
    entries.push_back(Entry(i, "all_reduce", "completed"));
  }
  const Json trimmed = Json::parse(TrimFlightRecorder(Dump(entries), 3));
  EXPECT_EQ(trimmed["entries"].size(), 4u);
  EXPECT_EQ(trimmed["entries"][0]["pg_id"], 1);
  EXPECT_EQ(trimmed["entries"][3]["collective_seq_id"], 50);
  EXPECT_THAT(TrimFlightRecorder("", 3), IsEmpty());
  EXPECT_THAT(TrimFlightRecorder("no dump", 3), IsEmpty());
}

}  // namespace
}  // namespace rankwise

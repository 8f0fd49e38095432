#include <string>
#include <vector>

#include "analysis/ledger/cells_for_test.h"
#include "analysis/ledger/ledger.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::IsEmpty;

// 4 ranks in a mesh; every step waits 3 ms along tp and 1 ms along dp.
RunTrace MakeMeshRun(const std::vector<RecordedAxis>& mesh) {
  RunTrace run =
      MakeRunOf({.binary = "hybrid", .world_size = 4}, [](int64_t, int64_t) {
        return LedgerParts{0.06, 0.004};
      });
  for (RankTrace& trace : run.ranks) {
    trace.run.mesh = mesh;
    for (StepRecord& step : trace.steps) {
      step.exposed_by_axis_seconds = {{"tp", 0.003}, {"dp", 0.001}};
    }
  }
  return run;
}

RecordedTransfer Call(const std::string& op, int64_t bytes,
                      const std::string& group) {
  RecordedTransfer call;
  call.op = op;
  call.bytes = bytes;
  call.group = group;
  return call;
}

// Returns "tp: 2 calls, 300 B, 3 ms" for each axis.
std::vector<std::string> Told(const RunTrace& run) {
  std::vector<std::string> told;
  const auto ledger = MeasureLedger(run, {0});
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  for (const AxisCommunication& one : ledger->communication) {
    char text[100];
    snprintf(text, sizeof(text), "%s: %g calls, %g B, %g ms", one.axis.c_str(),
             one.calls, one.bytes, 1e3 * one.wait_seconds);
    told.push_back(text);
  }
  return told;
}

TEST(Communication, IsTheMeanOverRanksAndStepsByAxis) {
  RunTrace run = MakeMeshRun({{"pp", 2}, {"dp", 1}, {"cp", 1}, {"tp", 2}});
  for (RankTrace& trace : run.ranks) {
    TrafficRecord step;
    step.events = {
        Call("all_reduce", 100, "tp"),     Call("all_reduce", 200, "tp"),
        Call("all_reduce", 40, ""),        Call("all_reduce", 8, "dp_cp"),
        Call("start_coalescing", 0, "pp"), Call("coalesced", 64, "pp")};
    step.events.push_back(Call(trace.run.rank < 2 ? "send" : "recv", 64, "pp"));
    trace.traffic = {step, step};
  }
  EXPECT_THAT(Told(run), testing::ElementsAre("tp: 2 calls, 300 B, 3 ms",
                                              "pp: 0.5 calls, 32 B, 0 ms",
                                              "dp: 1 calls, 8 B, 1 ms",
                                              "all: 1 calls, 40 B, 0 ms"));
}

TEST(Communication, AmongAllRanksIsOfTheAxisThatHasThem) {
  RunTrace run = MakeMeshRun({{"pp", 1}, {"dp", 1}, {"cp", 1}, {"tp", 4}});
  run.ranks[0].traffic.emplace_back().events = {Call("all_gather", 100, "")};
  EXPECT_THAT(Told(run), testing::ElementsAre("tp: 1 calls, 100 B, 3 ms",
                                              "dp: 0 calls, 0 B, 1 ms"));
}

TEST(Communication, AmongAllRanksIsOfGradientsWhereTheyAllAverageThem) {
  RunTrace run = MakeMeshRun({{"pp", 1}, {"dp", 2}, {"cp", 2}, {"tp", 1}});
  run.ranks[0].traffic.emplace_back().events = {Call("all_reduce", 100, "")};
  EXPECT_THAT(Told(run), testing::ElementsAre("tp: 0 calls, 0 B, 3 ms",
                                              "dp: 1 calls, 100 B, 1 ms"));
}

TEST(Communication, IsNotKnownWithoutRecordedTraffic) {
  EXPECT_THAT(Told(MakeMeshRun({{"dp", 4}})), IsEmpty());
}

}  // namespace
}  // namespace rankwise

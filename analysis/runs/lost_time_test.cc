#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "analysis/runs/run_trace.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RunTrace RunOf(const std::string& source, const RestartRecord& restart) {
  RunTrace run{source, {}};
  run.ranks.push_back({.run = {}});
  run.ranks[0].restarts = {restart};
  return run;
}

TEST(LostTime, IsFromTheCheckpointUntilTrainingResumed) {
  const RunTrace run =
      RunOf("a.jsonl", {0, 1, "rank 1 ended", 6, 100, 102.5, 104});
  EXPECT_THAT(LostTime({run}),
              ElementsAre("a.jsonl: restarted once, 4.0 s lost (restart 1 "
                          "after rank 1 ended: 2.5 s since the checkpoint of "
                          "step 6, 1.5 s until training resumed)"));
  EXPECT_THAT(LostTime({RunTrace{"b.jsonl", {RankTrace()}}}), IsEmpty());
}

TEST(LostTime, CountsSecondsLostByTwoRestartsOnce) {
  // The job failed again before its next checkpoint.
  EXPECT_THAT(
      LostTime({RunOf("a.jsonl", {0, 1, "x", 0, 100, 102, 104}),
                RunOf("a.jsonl", {0, 2, "y", 0, 103, 106, 109})}),
      ElementsAre("a.jsonl: restarted 2 times, 9.0 s lost (restart 1 after x: "
                  "2.0 s since the start, 2.0 s until training resumed; "
                  "restart 2 after y: 3.0 s since the start, 3.0 s until "
                  "training resumed)"));
}

TEST(LostTime, SaysWhatIsUnknown) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(LostTime({RunOf("a.jsonl", {0, 1, "", 6, 100, unknown, 104}),
                        RunOf("a.jsonl", {0, 2, "", 0, unknown, unknown, 200}),
                        RunOf("b.jsonl", {0, 1, "", 0, unknown, unknown, 9})}),
              ElementsAre("a.jsonl: restarted 2 times, at least 4.0 s lost "
                          "(restart 1: 4.0 s from the checkpoint of step 6 "
                          "until training resumed; restart 2: from the start)",
                          "b.jsonl: restarted once, time lost unknown "
                          "(restart 1: from the start)"));
}

}  // namespace
}  // namespace rankwise

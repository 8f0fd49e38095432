#include "parallel/comm/collective_log.h"

#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using State = CollectiveReport::State;

TEST(CollectiveLogTest, BeforeTheFirstCollectiveThereIsNone) {
  CollectiveLog log;
  EXPECT_EQ(log.Suspect().state, State::kNone);
  EXPECT_EQ(log.LastStarted().sequence, 0u);
  EXPECT_EQ(log.last_start_ns(), 0);
  EXPECT_EQ(log.busy_seconds(), 0);
}

TEST(CollectiveLogTest, DescribesNameNumberShapesAndType) {
  CollectiveLog log;
  log.Begin("barrier", {}, true);
  const std::vector<at::Tensor> tensors = {
      at::ones({64, 3}, at::kBFloat16), at::ones({}, at::kBFloat16),
      at::ones({1}, at::kBFloat16),     at::ones({2}, at::kBFloat16),
      at::ones({3}, at::kBFloat16),     at::ones({4}, at::kBFloat16)};
  EXPECT_EQ(log.LastStarted().description, "barrier #1");
  log.Begin("all_reduce", tensors, true);
  EXPECT_EQ(log.LastStarted().description,
            "all_reduce #2 of [[64, 3], [], [1], [2], and 2 more] bfloat16");
  EXPECT_GT(log.last_start_ns(), 0);
}

TEST(CollectiveLogTest, SuspectsTheFailedThenTheOldestInFlight) {
  CollectiveLog log;
  const auto first = log.Begin("all_reduce", {}, true);
  const auto second = log.Begin("broadcast", {}, true);
  const auto third = log.Begin("all_gather", {}, true);
  EXPECT_EQ(log.Suspect().description, "all_reduce #1");
  log.End(first, /*ok=*/true);
  EXPECT_EQ(log.Suspect().description, "broadcast #2");
  log.End(third, /*ok=*/false);
  EXPECT_EQ(log.Suspect().description, "all_gather #3");
  EXPECT_EQ(log.Suspect().state, State::kFailed);
  EXPECT_EQ(log.in_flight(), 1);
  log.End(second, /*ok=*/true);
  EXPECT_EQ(log.in_flight(), 0);
}

TEST(CollectiveLogTest, MessagesDoNotAdvanceTheGroupsNumber) {
  CollectiveLog log;
  log.Begin("all_reduce", {}, false);
  const std::vector<at::Tensor> tensors = {at::ones({2})};
  log.BeginPointToPoint("send", tensors, 3);
  EXPECT_EQ(log.LastStarted().description,
            "send with rank 3 after #1 of [[2]] float32");
  log.Begin("all_reduce", {}, false);
  EXPECT_EQ(log.LastStarted().sequence, 2u);
}

TEST(CollectiveLogTest, EachGroupCountsForItselfAndIsNamed) {
  CollectiveLog log;
  const int pp = log.AddGroup("pp", {2, 3});
  const int dp = log.AddGroup("dp", {0, 1, 2, 3, 4, 5, 6, 7, 8});
  log.Begin("all_reduce", {}, true);
  log.Begin("barrier", {}, true, dp);
  log.Begin("barrier", {}, true, dp);
  const std::vector<at::Tensor> tensors = {at::ones({2})};
  log.BeginPointToPoint("recv", tensors, /*peer=*/1, pp);
  const std::vector<CollectiveReport> progress = log.Progress();
  ASSERT_EQ(progress.size(), 3u);
  EXPECT_EQ(progress[0].description, "all_reduce #1");
  EXPECT_EQ(progress[pp].description,
            "recv with rank 3 after #0 of group pp (ranks 2, 3) of [[2]] "
            "float32");
  EXPECT_EQ(progress[pp].peer, 3);
  EXPECT_EQ(progress[pp].ranks, (std::vector<int>{2, 3}));
  EXPECT_EQ(progress[dp].sequence, 2u);
  EXPECT_EQ(progress[dp].description,
            "barrier #2 of group dp (ranks 0, 1, ..., 8)");
}

TEST(CollectiveLogTest, AGroupsForgottenProgressIsStillCounted) {
  CollectiveLog log;
  const int pp = log.AddGroup("pp", {2, 3});
  EXPECT_EQ(log.Progress()[pp].description, "");
  log.End(log.Begin("barrier", {}, true, pp), true);
  for (int i = 0; i < 1000; ++i) log.End(log.Begin("barrier", {}, true), true);
  EXPECT_EQ(log.Progress()[pp].sequence, 1u);
  EXPECT_EQ(log.Progress()[pp].description, "#1 of group pp (ranks 2, 3)");
}

TEST(CollectiveLogTest, AFailedMessageIsTheSuspectAndNoneIsInFlight) {
  CollectiveLog log;
  const auto recv = log.BeginPointToPoint("recv", {}, 1);
  const auto send = log.BeginPointToPoint("send", {}, 1);
  log.Begin("all_reduce", {}, true);
  EXPECT_EQ(log.in_flight(), 1);
  EXPECT_TRUE(log.EndPointToPoint(send, /*ok=*/true));
  EXPECT_TRUE(log.EndPointToPoint(recv, /*ok=*/false));
  EXPECT_EQ(log.in_flight(), 1);
  EXPECT_EQ(log.Suspect().description, "recv with rank 1 after #0");
  for (int i = 0; i < 1000; ++i) log.Begin("barrier", {}, false);
  EXPECT_FALSE(log.EndPointToPoint(recv, /*ok=*/false));
}

TEST(CollectiveLogTest, OldEntriesAreForgottenButStillCounted) {
  CollectiveLog log;
  const auto first = log.Begin("all_reduce", {}, true);
  for (int i = 0; i < 1000; ++i) log.End(log.Begin("barrier", {}, true), true);
  EXPECT_EQ(log.in_flight(), 1);
  log.End(first, true);
  EXPECT_EQ(log.in_flight(), 0);
  EXPECT_EQ(log.Suspect().description, "barrier #1001");
}

TEST(CollectiveLogTest, BusyTimeIsTheTimeWithAnythingInFlight) {
  CollectiveLog log;
  const auto first = log.Begin("all_reduce", {}, true);
  const auto second = log.Begin("all_reduce", {}, true);
  log.End(first, true);
  EXPECT_GT(log.busy_seconds(), 0) << "counts what is still in flight";
  log.End(second, true);
  const double busy = log.busy_seconds();
  EXPECT_EQ(log.busy_seconds(), busy) << "idle time does not count";
}

}  // namespace
}  // namespace rankwise

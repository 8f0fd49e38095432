#include "parallel/comm/diagnosis/collective_log.h"

#include <memory>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/backends/fake_backend.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {
namespace {

using State = CollectiveReport::State;

TEST(CollectiveLogTest, BeforeTheFirstCollectiveThereIsNone) {
  CollectiveLog log;
  EXPECT_EQ(log.Suspect().state, State::kNone);
  EXPECT_EQ(log.LastStarted().sequence, 0u);
  EXPECT_EQ(log.last_start_ns(), 0);
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
  EXPECT_EQ(log.LastStarted().peer, 3);
  EXPECT_EQ(log.LastStarted().ranks, (std::vector<int>{2, 3}));
  const std::vector<GroupProgress> progress = log.Progress();
  ASSERT_EQ(progress.size(), 3u);
  EXPECT_EQ(progress[0].doing, "all_reduce #1");
  EXPECT_EQ(progress[pp].doing,
            "recv with rank 3 after #0 of group pp (ranks 2, 3) of [[2]] "
            "float32");
  EXPECT_EQ(progress[dp].sequence, 2u);
  EXPECT_EQ(progress[dp].doing, "barrier #2 of group dp (ranks 0, 1, ..., 8)");
}

TEST(CollectiveLogTest, AGroupsForgottenProgressIsStillCounted) {
  CollectiveLog log;
  const int pp = log.AddGroup("pp", {2, 3});
  EXPECT_EQ(log.Progress()[pp].doing, "");
  log.End(log.Begin("barrier", {}, true, pp), true);
  for (int i = 0; i < 1000; ++i) log.End(log.Begin("barrier", {}, true), true);
  EXPECT_EQ(log.Progress()[pp].sequence, 1u);
  EXPECT_EQ(log.Progress()[pp].doing, "#1 of group pp (ranks 2, 3)");
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

TEST(TrafficOfALogTest, NotesOnlyWhileOn) {
  CollectiveLog log;
  const auto before = log.Begin("before", {}, true);
  log.StartTraffic();
  const auto sum = log.Begin("all_reduce", {at::ones({3, 2})}, true);
  const int pair = log.AddGroup("pp", {4, 5});
  const auto send =
      log.BeginPointToPoint("send", {at::ones({4}, at::kHalf)}, 1, pair);
  log.StopTraffic();
  const auto after = log.Begin("after", {}, true);
  log.End(before, /*ok=*/true);
  log.End(sum, /*ok=*/true);
  log.WaitPointToPoint(send);
  log.End(after, /*ok=*/true);
  const auto events = log.TakeTraffic();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].bytes, 24);
  EXPECT_EQ(events[0].count, 6);
  EXPECT_GT(events[0].end_ns, 0);
  EXPECT_EQ(events[0].wait_start_ns, 0);
  EXPECT_EQ(events[1].bytes, 8);
  EXPECT_EQ(events[1].peer, 5);
  EXPECT_GT(events[1].wait_start_ns, 0);
  EXPECT_EQ(events[1].end_ns, 0);
  EXPECT_TRUE(log.TakeTraffic().empty());
}

TEST(TrafficOfALogTest, AMarkHasNoEndOfItsOwn) {
  CollectiveLog log;
  log.StartTraffic();
  log.StartCoalescing(0);
  log.EndPointToPoint(log.BeginPointToPoint("send", {}, 1), /*ok=*/true);
  const auto events = log.TakeTraffic();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].op, "start_coalescing");
  EXPECT_EQ(events[0].end_ns, 0);
  EXPECT_GT(events[1].end_ns, 0);
}

TEST(TrafficOfALogTest, StartForgetsWhatWasNotTaken) {
  CollectiveLog log;
  log.StartTraffic();
  log.Begin("all_reduce", {}, /*observed=*/false);
  log.StartTraffic();
  EXPECT_TRUE(log.TakeTraffic().empty());
}

class TrafficTest : public ::testing::Test {
 protected:
  c10::intrusive_ptr<c10d::Backend> Monitored(int group) {
    return MakeMonitoredBackend(MakeFakeBackend(1, 2, {}), log_, {group});
  }
  void AwaitEnds() const {
    while (log_->in_flight() > 0) absl::SleepFor(absl::Milliseconds(1));
  }

  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  std::vector<at::Tensor> one_ = {at::ones({10})};
};

TEST_F(TrafficTest, EventsOfTwoGroupsWithTheirTimes) {
  const int pair = log_->AddGroup("pp", {2, 6});
  const auto all = Monitored(0);
  const auto some = Monitored(pair);
  all->allreduce(one_)->wait();
  log_->StartTraffic();
  all->allreduce(one_)->wait();
  some->send(one_, /*dst_rank=*/0, /*tag=*/3)->wait();
  all->barrier()->wait();
  c10d::BroadcastOptions from_its_second_rank;
  from_its_second_rank.rootRank = 1;
  some->broadcast(one_, from_its_second_rank)->wait();
  AwaitEnds();
  log_->StopTraffic();
  all->allreduce(one_)->wait();
  const std::vector<CommEvent> events = log_->TakeTraffic();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].op, "all_reduce");
  EXPECT_EQ(events[0].bytes, 40);
  EXPECT_EQ(events[0].dtype, "float32");
  EXPECT_EQ(events[0].peer, -1);
  EXPECT_TRUE(events[0].ranks.empty());
  EXPECT_EQ(events[0].group, "");
  EXPECT_GE(events[0].end_ns, events[0].start_ns);
  EXPECT_EQ(events[1].op, "send");
  EXPECT_EQ(events[1].peer, 2) << "as a rank of the job";
  EXPECT_EQ(events[1].ranks, (std::vector<int>{2, 6}));
  EXPECT_EQ(events[1].group, "pp");
  EXPECT_GE(events[1].wait_start_ns, events[1].start_ns);
  EXPECT_GE(events[1].end_ns, events[1].wait_start_ns);
  EXPECT_EQ(events[2].op, "barrier");
  EXPECT_EQ(events[2].dtype, "");
  EXPECT_GE(events[2].start_ns, events[1].end_ns);
  EXPECT_EQ(events[3].op, "broadcast");
  EXPECT_EQ(events[3].peer, 6) << "the root";
}

}  // namespace
}  // namespace rankwise

#include "parallel/comm/traffic.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/fake_backend.h"
#include "parallel/comm/monitored_backend.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {
namespace {

TEST(TrafficRecorderTest, NotesOnlyWhileOn) {
  TrafficRecorder recorder;
  recorder.Add(1, "before", {}, 0, -1, 10);
  recorder.Start();
  recorder.Add(2, "all_reduce", {at::ones({3, 2})}, 0, -1, 20);
  recorder.Add(3, "send", {at::ones({4}, at::kHalf)}, 1, 5, 30);
  recorder.Stop();
  recorder.Add(4, "after", {}, 0, -1, 40);
  recorder.Ended(1, 50);
  recorder.Ended(2, 51);
  recorder.Waited(3, 52);
  recorder.Waited(3, 53);  // a second waiter
  recorder.Ended(4, 54);
  const auto noted = recorder.Take();
  ASSERT_EQ(noted.size(), 2u);
  EXPECT_EQ(noted[0].bytes, 24);
  EXPECT_EQ(noted[0].count, 6);
  EXPECT_EQ(noted[0].end_ns, 51);
  EXPECT_EQ(noted[0].wait_start_ns, 0);
  EXPECT_EQ(noted[1].bytes, 8);
  EXPECT_EQ(noted[1].peer, 5);
  EXPECT_EQ(noted[1].wait_start_ns, 52);
  EXPECT_EQ(noted[1].end_ns, 0);
  EXPECT_TRUE(recorder.Take().empty());
}

TEST(TrafficRecorderTest, AMarksTicketIsThatOfTheCallAfterIt) {
  TrafficRecorder recorder;
  recorder.Start();
  recorder.Add(7, "start_coalescing", {}, 0, -1, 1);
  recorder.Add(7, "send", {}, 0, 1, 2);
  recorder.Ended(7, 3);
  const auto noted = recorder.Take();
  EXPECT_EQ(noted[0].end_ns, 0);
  EXPECT_EQ(noted[1].end_ns, 3);
}

TEST(TrafficRecorderTest, StartForgetsWhatWasNotTaken) {
  TrafficRecorder recorder;
  recorder.Start();
  recorder.Add(1, "all_reduce", {}, 0, -1, 1);
  recorder.Start();
  EXPECT_TRUE(recorder.on());
  EXPECT_TRUE(recorder.Take().empty());
  EXPECT_FALSE(recorder.on());
}

class TrafficTest : public ::testing::Test {
 protected:
  c10::intrusive_ptr<c10d::Backend> Watched(WatchCompletion watch, int group) {
    return MakeMonitoredBackend(MakeFakeBackend(1, 2, {}), log_, watch, group);
  }
  void AwaitEnds() const {
    while (log_->in_flight() > 0) absl::SleepFor(absl::Milliseconds(1));
  }

  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  std::vector<at::Tensor> one_ = {at::ones({10})};
};

TEST_F(TrafficTest, EventsOfTwoGroupsWithTheirTimes) {
  const int pair = log_->AddGroup("pp", {2, 6});
  const auto all = Watched(WatchCompletion::kYes, 0);
  const auto some = Watched(WatchCompletion::kYes, pair);
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
  EXPECT_GE(events[0].end_ns, events[0].start_ns);
  EXPECT_EQ(events[1].op, "send");
  EXPECT_EQ(events[1].peer, 2) << "as a rank of the job";
  EXPECT_EQ(events[1].ranks, (std::vector<int>{2, 6}));
  EXPECT_GE(events[1].wait_start_ns, events[1].start_ns);
  EXPECT_GE(events[1].end_ns, events[1].wait_start_ns);
  EXPECT_EQ(events[2].op, "barrier");
  EXPECT_EQ(events[2].dtype, "");
  EXPECT_GE(events[2].start_ns, events[1].end_ns);
  EXPECT_EQ(events[3].op, "broadcast");
  EXPECT_EQ(events[3].peer, 6) << "the root";
}

TEST_F(TrafficTest, EndsAreUnknownWhereCompletionIsNotWatched) {
  const auto backend = Watched(WatchCompletion::kNo, 0);
  log_->StartTraffic();
  backend->allreduce(one_)->wait();
  backend->send(one_, 0, 0)->wait();
  const std::vector<CommEvent> events = log_->TakeTraffic();
  ASSERT_EQ(events.size(), 2u);
  for (const CommEvent& event : events) {
    EXPECT_GT(event.start_ns, 0);
    EXPECT_EQ(event.wait_start_ns, 0);
    EXPECT_EQ(event.end_ns, 0);
  }
}

}  // namespace
}  // namespace rankwise

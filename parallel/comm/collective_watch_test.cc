#include "parallel/comm/collective_watch.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/monitored_backend.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

// Completes when told to; until then nobody learns anything from it.
class ManualWork : public c10d::Work {
 public:
  bool isCompleted() override {
    ++questions;
    if (throws) {
      throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 710,
                                  "CUDA error: device-side assert triggered");
    }
    return done;
  }
  std::exception_ptr exception() const override { return error; }
  void Fail(const std::string& text) {
    error = std::make_exception_ptr(std::runtime_error(text));
    done = true;
  }

  std::atomic<int> questions{0};
  std::atomic<bool> done{false};
  std::atomic<bool> throws{false};
  std::exception_ptr error;
};

// NCCL as its callers see it: every call gives a work that ends at some time.
class ManualBackend : public c10d::Backend {
 public:
  ManualBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "manual"; }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return Next();
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>&, int,
                                      int) override {
    return Next();
  }
  void startCoalescing() override {}
  c10::intrusive_ptr<c10d::Work> endCoalescing() override { return Next(); }

  std::vector<c10::intrusive_ptr<ManualWork>> works;

 private:
  c10::intrusive_ptr<c10d::Work> Next() {
    works.push_back(c10::make_intrusive<ManualWork>());
    return works.back();
  }
};

class CollectiveWatchTest : public ::testing::Test {
 protected:
  void Start(absl::Duration timeout) {
    config_.timeout = timeout;
    config_.interval = absl::Milliseconds(1);
    config_.look_interval = absl::Milliseconds(1);
    config_.give_up = [this](const Trouble& why) {
      why_ = why;
      given_up_.Notify();
    };
    watch_ = std::make_shared<CollectiveWatch>(config_, log_);
    monitored_ = MakeMonitoredBackend(backend_, log_, WatchCompletion::kAsked,
                                      /*group=*/0, {watch_, c10::kCPU});
  }

  std::string WhyGivenUp() {
    return given_up_.WaitForNotificationWithTimeout(kLong) ? why_.text
                                                           : "nothing happened";
  }

  CollectiveWatchConfig config_;
  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  c10::intrusive_ptr<ManualBackend> backend_ =
      c10::make_intrusive<ManualBackend>();
  std::vector<at::Tensor> tensors_ = {at::ones({4})};
  Trouble why_;
  absl::Notification given_up_;
  std::shared_ptr<CollectiveWatch> watch_;
  c10::intrusive_ptr<c10d::Backend> monitored_;
};

TEST_F(CollectiveWatchTest, EndsAreLearntByAsking) {
  Start(kLong);
  log_->StartTraffic();
  monitored_->allreduce(tensors_);
  monitored_->allreduce(tensors_);
  EXPECT_EQ(log_->in_flight(), 2);
  EXPECT_FALSE(watch_->Drain(absl::Milliseconds(5)));
  backend_->works[0]->done = backend_->works[1]->done = true;
  EXPECT_TRUE(watch_->Drain(kLong));
  EXPECT_EQ(log_->in_flight(), 0);
  EXPECT_EQ(log_->LastStarted().state, CollectiveReport::State::kDone);
  // That it is over is known; when it was, is not.
  EXPECT_EQ(log_->busy_seconds(), 0);
  for (const CommEvent& event : log_->TakeTraffic()) {
    EXPECT_EQ(event.end_ns, 0);
    EXPECT_GE(event.ended_before_ns, event.start_ns);
  }
  EXPECT_FALSE(given_up_.HasBeenNotified());
}

TEST_F(CollectiveWatchTest, OnlyTheOldestOfALaneIsAsked) {
  Start(kLong);
  monitored_->allreduce(tensors_);
  monitored_->allreduce(tensors_);
  monitored_->recv(tensors_, 1, /*tag=*/0);
  while (backend_->works[2]->questions < 3) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_GE(backend_->works[0]->questions, 2);
  EXPECT_EQ(backend_->works[1]->questions, 0);
}

TEST_F(CollectiveWatchTest, WhatDoesNotEndIsGivenUpAndNamed) {
  Start(absl::Milliseconds(50));
  monitored_->allreduce(tensors_);
  backend_->works[0]->done = true;
  monitored_->allreduce(tensors_);
  EXPECT_EQ(WhyGivenUp(), "Timed out after 50ms");
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
  EXPECT_EQ(log_->Suspect().description, "all_reduce #2 of [[4]] float32");
  EXPECT_FALSE(watch_->StandDown());
}

TEST_F(CollectiveWatchTest, AMessageIsGivenUpToo) {
  Start(absl::Milliseconds(50));
  monitored_->recv(tensors_, 1, /*tag=*/0);
  EXPECT_EQ(WhyGivenUp(), "Timed out after 50ms");
  EXPECT_EQ(log_->Suspect().peer, 1);
}

TEST_F(CollectiveWatchTest, TheErrorOfAWorkIsTheReason) {
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->Fail("ncclRemoteError: a CUDA error elsewhere");
  EXPECT_EQ(WhyGivenUp(), "ncclRemoteError: a CUDA error elsewhere");
  EXPECT_FALSE(why_.of_the_gpu);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
}

// An event of a GPU that has failed is not over: the question fails.
TEST_F(CollectiveWatchTest, AQuestionThatFailsIsTheReasonToo) {
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->throws = true;
  EXPECT_EQ(WhyGivenUp(), "CUDA error: device-side assert triggered");
  EXPECT_TRUE(why_.of_the_gpu);
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
}

TEST_F(CollectiveWatchTest, SoIsWhatIsSeenAround) {
  config_.look_around = [](absl::Duration oldest) -> std::string {
    return oldest > absl::Milliseconds(20) ? "a rank is gone" : "";
  };
  Start(kLong);
  absl::SleepFor(absl::Milliseconds(40));
  EXPECT_FALSE(given_up_.HasBeenNotified());  // nothing is in flight
  monitored_->allreduce(tensors_);
  EXPECT_EQ(WhyGivenUp(), "a rank is gone");
}

TEST_F(CollectiveWatchTest, WhoStandsDownGivesNothingUp) {
  Start(absl::Milliseconds(20));
  EXPECT_TRUE(watch_->StandDown());
  monitored_->allreduce(tensors_);
  EXPECT_FALSE(
      given_up_.WaitForNotificationWithTimeout(absl::Milliseconds(60)));
  EXPECT_FALSE(watch_->Drain(kLong));
}

TEST_F(CollectiveWatchTest, QuestionsAreAskedInTheirSurroundings) {
  std::atomic<bool> inside{false}, seen{false};
  config_.around_questions = [&](const std::function<void()>& ask) {
    inside = true;
    ask();
    inside = false;
    seen = true;
  };
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->done = true;
  EXPECT_TRUE(watch_->Drain(kLong));
  EXPECT_TRUE(seen || inside);
  watch_->StandDown();
  monitored_.reset();
  watch_.reset();  // before what it calls
}

TEST_F(CollectiveWatchTest, CoalescedCallsEndTogether) {
  Start(kLong);
  monitored_->startCoalescing();
  monitored_->allreduce(tensors_);
  monitored_->allreduce(tensors_);
  EXPECT_EQ(log_->in_flight(), 0);
  monitored_->endCoalescing();
  EXPECT_EQ(log_->in_flight(), 1);
}

}  // namespace
}  // namespace rankwise

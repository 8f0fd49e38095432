#include "parallel/comm/diagnosis/watchdog.h"

#include <signal.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/test_process.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr absl::Duration kLong = absl::Seconds(30);

// Completes on demand, and does not report completion by itself.
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

// Behaves like NCCL for its callers: every call returns a work that completes
// later.
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

class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() {
    config_.poll_interval = config_.look_interval = absl::Milliseconds(1);
    config_.print = [this](const std::string& line) { lines_.push_back(line); };
    config_.abort = [this] { lines_.push_back("(abort)"); };
    config_.end = [this](int exit_code) {
      lines_.push_back(absl::StrCat("(exit ", exit_code, ")"));
      given_up_.Notify();
    };
  }

  void Start(absl::Duration timeout) {
    config_.timeout = timeout;
    watchdog_ = std::make_shared<Watchdog>(config_, log_);
    monitored_ = MakeMonitoredBackend(backend_, log_, {.watchdog = watchdog_});
  }

  std::string WhyGivenUp() {
    return given_up_.WaitForNotificationWithTimeout(kLong) ? lines_.front()
                                                           : "nothing happened";
  }

  WatchdogConfig config_;
  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  c10::intrusive_ptr<ManualBackend> backend_ =
      c10::make_intrusive<ManualBackend>();
  std::vector<at::Tensor> tensors_ = {at::ones({4})};
  std::vector<std::string> lines_;
  absl::Notification given_up_;
  std::shared_ptr<Watchdog> watchdog_;
  c10::intrusive_ptr<c10d::Backend> monitored_;
};

TEST_F(WatchdogTest, EndsAreLearntByAsking) {
  Start(kLong);
  log_->StartTraffic();
  monitored_->allreduce(tensors_);
  monitored_->allreduce(tensors_);
  EXPECT_EQ(log_->in_flight(), 2);
  EXPECT_FALSE(watchdog_->Drain(absl::Milliseconds(5)));
  backend_->works[0]->done = backend_->works[1]->done = true;
  EXPECT_TRUE(watchdog_->Drain(kLong));
  EXPECT_EQ(log_->in_flight(), 0);
  EXPECT_EQ(log_->LastStarted().state, CollectiveReport::State::kDone);
  // The completion is known, but not its time.
  for (const CommEvent& event : log_->TakeTraffic()) {
    EXPECT_EQ(event.end_ns, 0);
  }
  EXPECT_FALSE(given_up_.HasBeenNotified());
}

TEST_F(WatchdogTest, OnlyTheOldestOfALaneIsAsked) {
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

TEST_F(WatchdogTest, WhatDoesNotEndIsGivenUpAndNamed) {
  Start(absl::Milliseconds(50));
  monitored_->allreduce(tensors_);
  backend_->works[0]->done = true;
  monitored_->allreduce(tensors_);
  EXPECT_THAT(WhyGivenUp(), HasSubstr("(Timed out after 50ms)"));
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
  EXPECT_EQ(log_->Suspect().description, "all_reduce #2 of [[4]] float32");
  EXPECT_FALSE(watchdog_->StandDown());
}

TEST_F(WatchdogTest, AMessageIsGivenUpToo) {
  Start(absl::Milliseconds(50));
  monitored_->recv(tensors_, 1, /*tag=*/0);
  EXPECT_THAT(WhyGivenUp(), HasSubstr("(Timed out after 50ms)"));
  EXPECT_EQ(log_->Suspect().peer, 1);
}

TEST_F(WatchdogTest, TheErrorOfAWorkIsTheReason) {
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->Fail("ncclRemoteError: a CUDA error elsewhere");
  EXPECT_THAT(WhyGivenUp(),
              AllOf(HasSubstr("communication failed on rank 0 of 1"),
                    HasSubstr("(ncclRemoteError: a CUDA error elsewhere)")));
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
}

// Polling an event of a failed GPU throws.
TEST_F(WatchdogTest, AQuestionThatFailsIsTheReasonToo) {
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->throws = true;
  EXPECT_THAT(WhyGivenUp(),
              HasSubstr("work on the GPU failed on rank 0 of 1: CUDA error: "
                        "device-side assert triggered"));
  EXPECT_EQ(log_->Suspect().state, CollectiveReport::State::kFailed);
}

TEST_F(WatchdogTest, SoIsWhatIsSeenAround) {
  config_.world_size = 2;
  const auto store = c10::make_intrusive<c10d::HashStore>();
  config_.store = store;
  Start(kLong);
  ReportDeath(*store, 1, "signal 9 (Killed)");
  absl::SleepFor(absl::Milliseconds(40));
  EXPECT_FALSE(given_up_.HasBeenNotified());  // nothing is in flight
  monitored_->allreduce(tensors_);
  EXPECT_THAT(WhyGivenUp(), HasSubstr("(a rank has died)"));
}

TEST_F(WatchdogTest, WhoStandsDownGivesNothingUp) {
  Start(absl::Milliseconds(20));
  EXPECT_TRUE(watchdog_->StandDown());
  monitored_->allreduce(tensors_);
  EXPECT_FALSE(
      given_up_.WaitForNotificationWithTimeout(absl::Milliseconds(60)));
  EXPECT_FALSE(watchdog_->Drain(kLong));
}

TEST_F(WatchdogTest, QuestionsAreAskedInTheirSurroundings) {
  std::atomic<bool> inside{false}, seen{false};
  config_.around_polling = [&](const std::function<void()>& ask) {
    inside = true;
    ask();
    inside = false;
    seen = true;
  };
  Start(kLong);
  monitored_->allreduce(tensors_);
  backend_->works[0]->done = true;
  EXPECT_TRUE(watchdog_->Drain(kLong));
  EXPECT_TRUE(seen || inside);
  watchdog_->StandDown();
  monitored_.reset();
  watchdog_.reset();  // before the objects that it calls
}

TEST_F(WatchdogTest, CoalescedCallsEndTogether) {
  Start(kLong);
  monitored_->startCoalescing();
  monitored_->allreduce(tensors_);
  monitored_->allreduce(tensors_);
  EXPECT_EQ(log_->in_flight(), 0);
  monitored_->endCoalescing();
  EXPECT_EQ(log_->in_flight(), 1);
}

// One of two ranks, with a store and an idle watchdog thread.
class RankOfTwoTest : public WatchdogTest {
 protected:
  RankOfTwoTest() {
    config_.world_size = 2;
    config_.store = store_;
    config_.heartbeat = [this] { return &heartbeat_; };
    config_.dump_recorder = [] { return R"({"entries":[]})"; };
    config_.poll_interval = kLong;
  }

  c10::intrusive_ptr<c10d::HashStore> store_ =
      c10::make_intrusive<c10d::HashStore>();
  Heartbeat heartbeat_{store_, 0, log_};
};

TEST_F(RankOfTwoTest, TellsOnceThenAbortsThenEnds) {
  Start(absl::Minutes(5));
  Heartbeat other(store_, 1, std::make_shared<CollectiveLog>());
  log_->Follow(log_->Begin("all_reduce", {at::ones({4})}, /*observed=*/false));
  watchdog_->GiveUp({"Timed out after 5m"});
  EXPECT_THAT(
      lines_,
      ElementsAre(AllOf(ContainsRegex(
                            "communication failed on rank 0 of 2 in all_reduce "
                            "#1 of \\[\\[4\\]\\] float32, .* s after it was "
                            "started: rank 1 did not arrive: it is alive"),
                        HasSubstr("(Timed out after 5m)")),
                  ContainsRegex("rank 0: c10d's flight recorder .* is in "
                                "/.*rankwise_calls_rank_0_pid_[0-9]+.json"),
                  "(abort)", "(exit 1)"));
  const std::string path = lines_[1].substr(lines_[1].find(" /") + 1);
  std::string recorded;
  std::getline(std::ifstream(path), recorded);
  EXPECT_EQ(recorded, R"({"entries":[]})");
  std::filesystem::remove(path);
}

TEST_F(RankOfTwoTest, AGpuThatHasFailedIsNotBlamedOnCommunication) {
  config_.dump_recorder = nullptr;
  Start(absl::Minutes(5));
  log_->Follow(log_->Begin("all_reduce", {at::ones({4})}, /*observed=*/false));
  watchdog_->GiveUp(
      {"CUDA error: device-side assert triggered", /*of_the_gpu=*/true});
  ASSERT_FALSE(lines_.empty());
  EXPECT_THAT(
      lines_[0],
      AllOf(HasSubstr("work on the GPU failed on rank 0 of 2: CUDA "
                      "error: device-side assert triggered"),
            HasSubstr("CUDA_LAUNCH_BLOCKING=1"),
            Not(HasSubstr("communication")), Not(HasSubstr("all_reduce"))));
  EXPECT_EQ(lines_.back(), "(exit 1)");
}

TEST_F(RankOfTwoTest, SeesAFailureAndADeathElsewhere) {
  Start(absl::Minutes(5));
  EXPECT_EQ(watchdog_->LookAround(absl::Seconds(5)).text, "");
  Heartbeat other(store_, 1, log_);
  other.MarkFailed("barrier #1");
  EXPECT_EQ(watchdog_->LookAround(absl::ZeroDuration()).text, "");
  EXPECT_EQ(watchdog_->LookAround(absl::Seconds(5)).text,
            "another rank has failed");
  ReportDeath(*store_, 1, "signal 9 (Killed)");
  EXPECT_EQ(watchdog_->LookAround(absl::Milliseconds(300)).text,
            "a rank has died");
  EXPECT_EQ(watchdog_->LookAround(absl::ZeroDuration()).text, "");
}

TEST_F(RankOfTwoTest, AsksForRanksThatWentWithoutAWord) {
  config_.silence = absl::Milliseconds(100);
  Start(absl::Minutes(5));
  EXPECT_EQ(watchdog_->LookAround(absl::Seconds(9)).text, "");
  EXPECT_EQ(watchdog_->LookAround(absl::Seconds(11)).text, "a rank is gone");
}

TEST(RunWithinTest, DoesNotWaitForever) {
  EXPECT_TRUE(RunWithin(absl::Seconds(30), [] {}));
  EXPECT_TRUE(RunWithin(absl::Seconds(30), [] { throw std::exception(); }));
  EXPECT_FALSE(RunWithin(absl::Milliseconds(20),
                         [] { absl::SleepFor(absl::Milliseconds(500)); }));
}

// Real ranks over Gloo, whose collectives are polled like NCCL's.
std::vector<std::string> Polled(int count, const std::string& scenario,
                                const std::string& timeout) {
  return {Runfile("parallel/comm/test_rank"), absl::StrCat("--nproc=", count),
          "--scenario=" + scenario, "--poll_gloo",
          "--collective_timeout=" + timeout};
}

TEST(PolledRanksTest, ALateRankIsNamedAndNobodyHangs) {
  TestProcess process(Polled(3, "late", "2s"));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(ContainsRegex("communication failed on rank 0 of 3 in all_reduce "
                          "#2 of \\[\\[7, 5\\]\\] float32, 2.* s after"),
            HasSubstr("rank 1 did not arrive: it is alive, and its last call "
                      "is all_reduce #1 of [[2, 3]] float32"),
            HasSubstr("count, with their states) is in /"),
            Not(HasSubstr("frame #")), Not(HasSubstr("terminate called"))));
}

TEST(PolledRanksTest, AKilledRankIsNamedLongBeforeTheTimeout) {
  TestProcess process(Polled(2, "kill", "10m"));
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_THAT(process.Stderr(), AllOf(HasSubstr("rank 1 is dead: signal 9"),
                                      Not(HasSubstr("frame #"))));
}

TEST(PolledRanksTest, WhatGoesWellEndsWell) {
  TestProcess process(Polled(2, "all", "1m"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_TRUE(
      process.AwaitOutput("mean 0.5 root 1 last 10", 2, absl::Seconds(1)))
      << process.Stdout();
}

}  // namespace
}  // namespace rankwise

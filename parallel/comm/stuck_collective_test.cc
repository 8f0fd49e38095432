// The end of ranks whose collectives nobody waits for in the open.
#include "parallel/comm/stuck_collective.h"

#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/run_within.h"
#include "parallel/comm/test_process.h"
#include "torch/csrc/distributed/c10d/HashStore.hpp"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class StuckCollectiveTest : public ::testing::Test {
 protected:
  StuckCollectiveTest() {
    config_.world_size = 2;
    config_.log = log_;
    config_.store = store_;
    config_.heartbeat = [this] { return &heartbeat_; };
    config_.dump_recorder = [] {
      return R"({"version":"2.10","entries":[{"pg_id":0,
          "process_group":["all",""],"collective_seq_id":1,"state":"scheduled",
          "profiling_name":"nccl:barrier","is_p2p":false,"retired":false}]})";
    };
    config_.print = [this](const std::string& line) { lines_.push_back(line); };
    config_.abort = [this] { lines_.push_back("(abort)"); };
    config_.end = [this](int exit_code) {
      lines_.push_back(absl::StrCat("(exit ", exit_code, ")"));
    };
  }

  std::shared_ptr<CollectiveLog> log_ = std::make_shared<CollectiveLog>();
  c10::intrusive_ptr<c10d::HashStore> store_ =
      c10::make_intrusive<c10d::HashStore>();
  Heartbeat heartbeat_{store_, 0, log_};
  StuckCollectiveConfig config_;
  std::vector<std::string> lines_;
};

TEST_F(StuckCollectiveTest, TellsOnceThenAbortsThenEnds) {
  Heartbeat other(store_, 1, std::make_shared<CollectiveLog>());
  log_->Follow(log_->Begin("all_reduce", {at::ones({4})}, /*observed=*/false));
  StuckCollective(config_).GiveUp({"Timed out after 5m"});
  EXPECT_THAT(
      lines_,
      ElementsAre(AllOf(ContainsRegex(
                            "communication failed on rank 0 of 2 in all_reduce "
                            "#1 of \\[\\[4\\]\\] float32, .* s after it was "
                            "started: rank 1 did not arrive: it is alive"),
                        HasSubstr("(Timed out after 5m)")),
                  "flight recorders, by c10d's own count:",
                  "  group all: #1: rank 0 has called barrier",
                  "  no record of rank 1", "(abort)", "(exit 1)"));
}

TEST_F(StuckCollectiveTest, AGpuThatHasFailedIsNotBlamedOnCommunication) {
  Heartbeat other(store_, 1, std::make_shared<CollectiveLog>());
  log_->Follow(log_->Begin("all_reduce", {at::ones({4})}, /*observed=*/false));
  StuckCollective(config_).GiveUp(
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

TEST_F(StuckCollectiveTest, SeesAFailureAndADeathElsewhere) {
  StuckCollective stuck(config_);
  EXPECT_EQ(stuck.LookAround(absl::Seconds(5)), "");
  Heartbeat other(store_, 1, log_);
  other.MarkFailed("barrier #1");
  EXPECT_EQ(stuck.LookAround(absl::ZeroDuration()), "");
  // Those who explain it get this rank's recorder even while it does nothing.
  EXPECT_TRUE(store_->check({"recorder/0"}));
  EXPECT_EQ(stuck.LookAround(absl::Seconds(5)), "another rank has failed");
  ReportDeath(*store_, 1, "signal 9 (Killed)");
  EXPECT_EQ(stuck.LookAround(absl::Milliseconds(300)), "a rank has died");
  EXPECT_EQ(stuck.LookAround(absl::ZeroDuration()), "");
}

TEST_F(StuckCollectiveTest, AsksForRanksThatWentWithoutAWord) {
  config_.silence = absl::Milliseconds(100);
  StuckCollective stuck(config_);
  EXPECT_EQ(stuck.LookAround(absl::Seconds(9)), "");
  EXPECT_EQ(stuck.LookAround(absl::Seconds(11)), "a rank is gone");
}

TEST(RunWithinTest, DoesNotWaitForever) {
  EXPECT_TRUE(RunWithin(absl::Seconds(30), [] {}));
  EXPECT_TRUE(RunWithin(absl::Seconds(30), [] { throw std::exception(); }));
  EXPECT_FALSE(RunWithin(absl::Milliseconds(20),
                         [] { absl::SleepFor(absl::Milliseconds(500)); }));
}

// Real ranks, over Gloo, whose collectives are followed as NCCL's are.
std::vector<std::string> Asked(int count, const std::string& scenario,
                               const std::string& timeout) {
  return {Runfile("parallel/comm/test_rank"), absl::StrCat("--nproc=", count),
          "--scenario=" + scenario, "--ask_gloo",
          "--collective_timeout=" + timeout};
}

TEST(AskedRanksTest, ALateRankIsNamedAndNobodyHangs) {
  TestProcess process(Asked(3, "late", "2s"));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(ContainsRegex("communication failed on rank 0 of 3 in all_reduce "
                          "#2 of \\[\\[7, 5\\]\\] float32, 2.* s after"),
            HasSubstr("rank 1 did not arrive: it is alive, and the last it "
                      "started is all_reduce #1 of [[2, 3]] float32"),
            HasSubstr("flight recorders, by c10d's own count:"),
            ContainsRegex("#1 is done everywhere; #2: ranks? .* called "
                          "all_reduce of \\[\\[7,5\\]\\] float32; rank 1 has "
                          "not come to it, its last is #1"),
            Not(HasSubstr("frame #")), Not(HasSubstr("terminate called"))));
}

TEST(AskedRanksTest, AKilledRankIsNamedLongBeforeTheTimeout) {
  TestProcess process(Asked(2, "kill", "10m"));
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_THAT(process.Stderr(), AllOf(HasSubstr("rank 1 is dead: signal 9"),
                                      Not(HasSubstr("frame #"))));
}

TEST(AskedRanksTest, WhatGoesWellEndsWell) {
  TestProcess process(Asked(2, "all", "1m"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_TRUE(
      process.AwaitOutput("mean 0.5 root 1 last 10", 2, absl::Seconds(1)))
      << process.Stdout();
}

}  // namespace
}  // namespace rankwise

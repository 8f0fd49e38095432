// Tests jobs restarted after a failure, by our launcher or under torchrun, and
// jobs preempted by a scheduler: they must continue from their last checkpoint
// with bitwise identical losses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// 8 steps per epoch on one rank, and a checkpoint every 3 steps.
Flags FlagsFor(const std::string& dir, int64_t max_steps,
               const Flags& more = {}) {
  return Joined(more,
                {"--train_size=256", "--test_size=64", "--epochs=1000",
                 "--threads=1", "--checkpoint_every=3", "--log_every=1",
                 absl::StrCat("--max_steps=", max_steps),
                 "--record=" + dir + "/run.jsonl", "--checkpoint_dir=" + dir});
}

Losses Undisturbed(int64_t steps, const Flags& more) {
  const std::string dir = FreshDir("undisturbed");
  OutputOf("ddp", FlagsFor(dir, steps, more));
  return LossesOf(dir + "/run.jsonl", 0);
}

// Returns the environment of a single rank under torchrun.
Flags OfTorchrun(int restart) {
  return {"RANK=0",
          "WORLD_SIZE=1",
          "LOCAL_RANK=0",
          "LOCAL_WORLD_SIZE=1",
          "TORCHELASTIC_MAX_RESTARTS=3",
          absl::StrCat("TORCHELASTIC_RESTART_COUNT=", restart)};
}

TEST(RestartTest, AJobWithAKilledRankContinuesWithTheSameLosses) {
  const Flags two = {"--nproc=2", "--batch_size=32"};
  constexpr int64_t kSteps = 40;
  const Losses expected = Undisturbed(kSteps, two);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  const std::string dir = FreshDir("restarted");
  auto run = StartTrainer(
      "ddp", Joined(FlagsFor(dir, kSteps, two), {"--max_restarts=2"}));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 8);
  ASSERT_EQ(ranks.size(), 2u);
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_EQ(run->Wait(), 0) << run->Stderr();
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(), HasSubstr("restart 1 of 2: starting 2 ranks"));
  EXPECT_THAT(run->Stdout(),
              AllOf(HasSubstr("resumed after step "),
                    ContainsRegex("restart 1 after rank 1 .*signal 9.*; "
                                  "[0-9]+[.][0-9] s lost")));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), expected);
  const auto restarts = RecordsOf<RestartRecord>(dir + "/run.jsonl");
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_EQ(restarts[0].restart, 1);
  EXPECT_THAT(restarts[0].cause, HasSubstr("ended with signal 9 (Killed)"));
  EXPECT_GE(restarts[0].step, 3);
  EXPECT_LE(restarts[0].kept_unix_seconds, restarts[0].failed_unix_seconds);
  EXPECT_LE(restarts[0].failed_unix_seconds, restarts[0].training_unix_seconds);
}

TEST(RestartTest, AJobStartsFromTheBeginningAndItsRestartsContinue) {
  const std::string dir = FreshDir("torchrun");
  const Flags one = {"--batch_size=32"};
  OutputOf("ddp", FlagsFor(dir, 5, one));
  // Restarts of the next job must not continue from this job's checkpoints.
  EXPECT_THAT(
      OutputOf("ddp", FlagsFor(dir, 3, one), OfTorchrun(0)),
      AllOf(HasSubstr("are renamed *.superseded"), Not(HasSubstr("resumed"))));
  EXPECT_THAT(
      OutputOf("ddp", FlagsFor(dir, 8, one), OfTorchrun(1)),
      AllOf(HasSubstr("resumed after step 3"), HasSubstr("restart 1; ")));
  const auto restarts = RecordsOf<RestartRecord>(dir + "/run.jsonl");
  ASSERT_EQ(restarts.size(), 1u);
  EXPECT_EQ(restarts[0].cause, "");
  EXPECT_TRUE(std::isnan(restarts[0].failed_unix_seconds));
  EXPECT_FALSE(std::isnan(restarts[0].kept_unix_seconds));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), Undisturbed(8, one));
}

// As under torchrun --nnodes=1:3 after a host has left.
TEST(RestartTest, ARestartWithFewerRanksNeedsTheSameGlobalBatch) {
  const std::string dir = FreshDir("elastic");
  OutputOf("ddp", FlagsFor(dir, 4, {"--nproc=2", "--batch_size=16"}));
  const Finished other =
      RunTrainer("ddp", FlagsFor(dir, 8, {"--batch_size=16"}), OfTorchrun(1));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr("give --batch_size=32 or --accumulate=2"));
  EXPECT_THAT(OutputOf("ddp", FlagsFor(dir, 8, {"--global_batch_size=32"}),
                       OfTorchrun(1)),
              HasSubstr("resumed after step 4"));
  const Losses expected = Undisturbed(8, {"--batch_size=32"});
  for (const auto& [step, loss] : LossesOf(dir + "/run.jsonl", 0)) {
    if (step <= 4) continue;  // of the first job
    EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << "step " << step;
  }
}

class PreemptionTest : public ::testing::TestWithParam<bool> {};

// Sends the signal to the launcher, or to one rank, which informs the other.
TEST_P(PreemptionTest, AJobSavesExitsWithItsOwnCodeAndResumes) {
  const Flags two = {"--nproc=2", "--batch_size=32"};
  const std::string dir = FreshDir("preempted");
  auto run = StartTrainer(
      "ddp", Joined(FlagsFor(dir, 100000, two), {"--checkpoint_every=0"}));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 5);
  ASSERT_EQ(ranks.size(), 2u);
  const bool to_launcher = GetParam();
  kill(to_launcher ? run->pid() : ranks[1], to_launcher ? SIGTERM : SIGUSR1);
  EXPECT_EQ(run->Wait(), 75) << run->Stderr();
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stdout(), HasSubstr("ddp: ended by a signal after step "));
  EXPECT_THAT(run->Stderr(), Not(HasSubstr("error")));

  const int64_t done = LossesOf(dir + "/run.jsonl", 0).rbegin()->first;
  const int64_t steps = done + 6;
  EXPECT_THAT(OutputOf("ddp", Joined(FlagsFor(dir, steps, two), {"--resume"})),
              HasSubstr(absl::StrCat("resumed after step ", done, " ")));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), Undisturbed(steps, two));
}

INSTANTIATE_TEST_SUITE_P(Receivers, PreemptionTest, ::testing::Bool(),
                         [](const auto& info) {
                           return info.param ? "Launcher" : "OneRank";
                         });

// The interval requires saving every step, and every step ends an epoch. The
// preempted job saves its last epoch before the evaluation, which the resumed
// job runs.
TEST(RestartTest, NoStepIsSavedOrEvaluatedTwice) {
  const auto flags_for = [](const std::string& dir, int64_t max_steps) {
    return Joined(
        FlagsFor(dir, max_steps),
        {"--model=mlp", "--width=32", "--batch_size=32", "--train_size=32",
         "--epochs=100000", "--checkpoint_every=1", "--resume"});
  };
  const std::string dir = FreshDir("epochs"), other = FreshDir("undisturbed");
  auto run = StartTrainer("single", flags_for(dir, 100000));
  ASSERT_TRUE(run->AwaitOutput("  step ", 5)) << run->Stderr();
  kill(run->pid(), SIGTERM);
  EXPECT_EQ(run->Wait(), 75) << run->Stderr();
  const int64_t steps = LossesOf(dir + "/run.jsonl", 0).rbegin()->first + 3;
  OutputOf("single", flags_for(dir, steps));
  OutputOf("single", flags_for(other, steps));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), LossesOf(other + "/run.jsonl", 0));

  std::vector<int64_t> saved, evaluated, once(static_cast<size_t>(steps));
  std::iota(once.begin(), once.end(), 1);
  for (const auto& save : RecordsOf<CheckpointRecord>(dir + "/run.jsonl"))
    saved.push_back(save.step);
  for (const auto& evaluation : RecordsOf<EvalRecord>(dir + "/run.jsonl"))
    evaluated.push_back(evaluation.epoch);
  EXPECT_EQ(saved, once);
  EXPECT_EQ(evaluated, once);
}

}  // namespace
}  // namespace rankwise

// Tests stopping, crashing and resuming: a resumed run must have the same
// losses as an undisturbed one, bit by bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// 8 steps per epoch, with a checkpoint every 3 steps.
Flags FlagsFor(const std::string& dir, int64_t max_steps,
               const Flags& more = {}) {
  return Joined({"--train_size=256", "--test_size=64", "--batch_size=32",
                 "--epochs=20", "--threads=1", "--checkpoint_every=3",
                 "--log_every=1", absl::StrCat("--max_steps=", max_steps),
                 "--record=" + dir + "/run.jsonl", "--checkpoint_dir=" + dir},
                more);
}

Losses Undisturbed(const std::string& trainer, int64_t steps,
                   const Flags& more) {
  const std::string dir = FreshDir("undisturbed");
  OutputOf(trainer, FlagsFor(dir, steps, more));
  return LossesOf(dir + "/run.jsonl", 0);
}

TEST(ResumeTest, AStoppedRunGoesOnBitEqualAcrossEpochs) {
  const Losses expected = Undisturbed("single", 20, {});
  ASSERT_EQ(expected.size(), 20u);
  const std::string dir = FreshDir("stopped");
  OutputOf("single", FlagsFor(dir, 5));
  EXPECT_THAT(OutputOf("single", FlagsFor(dir, 13, {"--resume"})),
              HasSubstr("resumed after step 5"));
  OutputOf("single", FlagsFor(dir, 20, {"--resume"}));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), expected);
  // Epoch 1 was interrupted after 5 of its 8 steps, and completed later.
  int64_t examples = 0;
  for (const auto& epoch : RecordsOf<EpochRecord>(dir + "/run.jsonl")) {
    if (epoch.epoch == 1) examples = epoch.examples;
  }
  EXPECT_EQ(examples, 256);
}

// Sums of more than two numbers depend on their order.
TEST(ResumeTest, ThreeRanksAddGradientsInTheOrderOfTheRunBefore) {
  const Flags three = {"--nproc=3", "--model=mlp", "--backend=gloo"};
  const Losses expected = Undisturbed("ddp", 12, three);
  ASSERT_EQ(expected.size(), 12u);
  const std::string dir = FreshDir("three");
  for (const int64_t until : {1, 5, 12})
    OutputOf("ddp", FlagsFor(dir, until, Joined(three, {"--resume"})));
  EXPECT_EQ(LossesOf(dir + "/run.jsonl", 0), expected);
}

TEST(ResumeTest, AKilledRankIsNamedTheOthersEndAndTheRunGoesOn) {
  const Flags two = {"--nproc=2", "--epochs=100000"};
  const std::string dir = FreshDir("killed");
  // More steps than can finish: the kill ends the job.
  auto run = StartTrainer("ddp", FlagsFor(dir, 100000, two));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 7);
  ASSERT_EQ(ranks.size(), 2u);
  const Finished other = RunTrainer("single", FlagsFor(dir, 4));
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.err, HasSubstr(absl::StrCat("in use by ddp, process ",
                                                ranks[0], " on host ")));
  const SteadyTime killed = SteadyNow();
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_GT(run->Wait(absl::Seconds(20)), 0);
  EXPECT_LT(ElapsedSince(killed),
            absl::Seconds(6));  // 5 s, plus a loaded machine's delay
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(), ContainsRegex("rank 1.*(SIGKILL|signal 9)"));

  const Losses until_killed = LossesOf(dir + "/run.jsonl", 0);
  ASSERT_FALSE(until_killed.empty());
  const int64_t steps = until_killed.rbegin()->first + 4;
  std::filesystem::remove(dir + "/run.jsonl");
  EXPECT_THAT(OutputOf("ddp", FlagsFor(dir, steps, Joined(two, {"--resume"}))),
              HasSubstr("resumed after step "));
  const Losses losses = LossesOf(dir + "/run.jsonl", 0);
  ASSERT_FALSE(losses.empty());
  EXPECT_EQ(losses.rbegin()->first, steps);
  const Losses expected = Undisturbed("ddp", steps, two);
  for (const auto& [step, loss] : losses)
    EXPECT_EQ(loss, expected.at(step)) << "step " << step;
}

// Every rank evaluates its share of the test set with its own statistics.
TEST(ResumeTest, EachRankContinuesWithItsOwnBuffers) {
  const auto evaluated = [](const std::string& dir) {
    const auto evaluations = RecordsOf<EvalRecord>(dir + "/run.jsonl");
    return evaluations.empty() ? 0 : evaluations.back().mean_loss;
  };
  const Flags own = {"--nproc=2", "--model=simple_cnn_bn",
                     "--broadcast_buffers=false"};
  const std::string expected = FreshDir("own_buffers");
  OutputOf("ddp", FlagsFor(expected, 4, own));
  const std::string dir = FreshDir("own_buffers_resumed");
  OutputOf("ddp", FlagsFor(dir, 3, own));
  const Flags resumed = Joined(own, {"--resume"});
  OutputOf("ddp", FlagsFor(dir, 4, resumed));
  EXPECT_NE(evaluated(expected), 0);
  EXPECT_EQ(evaluated(dir), evaluated(expected));
  const Finished alone = RunTrainer(
      "ddp",
      FlagsFor(dir, 7, Joined(resumed, {"--nproc=1", "--accumulate=2"})));
  EXPECT_EQ(alone.code, 1);
  EXPECT_THAT(alone.err, HasSubstr("--broadcast_buffers=false: the checkpoint "
                                   "has the buffers of 2 data-parallel ranks"));
}

// Two ranks, one, and two again, across the end of an epoch: the order of
// examples continues, so that the losses equal those of one process.
TEST(ResumeTest, AnotherWorldSizeGoesOnWithTheNextExamples) {
  const Losses expected = Undisturbed("single", 9, {});
  const std::string dir = FreshDir("ranks");
  int64_t done = 0;
  for (const auto& [ranks, until] :
       std::vector<std::pair<int, int64_t>>{{2, 3}, {1, 5}, {2, 9}}) {
    OutputOf(ranks == 1 ? "single" : "ddp",
             FlagsFor(dir, until,
                      {"--resume", absl::StrCat("--nproc=", ranks),
                       absl::StrCat("--batch_size=", 32 / ranks)}));
    const auto losses = MeanLosses(dir + "/run.jsonl", ranks);
    EXPECT_EQ(losses.size(), static_cast<size_t>(until - done));
    for (const auto& [step, loss] : losses)
      EXPECT_NEAR(loss, expected.at(step), 1e-4 * loss) << "step " << step;
    std::filesystem::remove(dir + "/run.jsonl");
    done = until;
  }
}

// A folder at the file's path makes the write fail even for root.
TEST(ResumeTest, ARankThatCannotSaveEndsTheJobForAllAndTheLastSaveStays) {
  const std::string dir = FreshDir("unsaved");
  const Flags flags = {"--nproc=2", "--model=mlp", "--width=64", "--resume"};
  OutputOf("fsdp", FlagsFor(dir, 4, flags));
  const std::string file = dir + "/step_00000006.shard_1_of_2.safetensors";
  std::filesystem::create_directory(file);
  const Finished run = RunTrainer("fsdp", FlagsFor(dir, 12, flags));
  EXPECT_NE(run.code, 0);
  const std::string why =
      "error: saving the checkpoint of step 6 failed on rank 1: ";
  for (const char* rank : {"fsdp: rank 0: ", "fsdp: rank 1: "})
    EXPECT_THAT(run.err, HasSubstr(rank + why));
  EXPECT_THAT(run.err, AllOf(HasSubstr(file), Not(HasSubstr("dead")),
                             Not(HasSubstr("did not arrive"))));

  std::filesystem::remove(file);
  EXPECT_THAT(OutputOf("fsdp", FlagsFor(dir, 6, flags)),
              HasSubstr("resumed after step 4"));
}

TEST(ResumeTest, ATornCheckpointIsNamedAndThePreviousOneUsed) {
  const std::string dir = FreshDir("torn");
  OutputOf("single", FlagsFor(dir, 6));
  const std::string newest = dir + "/step_00000006.safetensors";
  ASSERT_TRUE(std::filesystem::exists(newest));
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  const Finished resumed = RunTrainer("single", FlagsFor(dir, 8, {"--resume"}));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("warning: "),
                                 HasSubstr("step_00000006.safetensors")));
  EXPECT_THAT(resumed.out, HasSubstr("resumed after step 3"));
}

TEST(ResumeTest, OnlyDamagedCheckpointsEndTheRunWithTheirNames) {
  const std::string dir = FreshDir("damaged");
  std::ofstream(dir + "/step_00000003.safetensors")
      << "this is not a checkpoint";
  const Finished run = RunTrainer("single", FlagsFor(dir, 8, {"--resume"}));
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("single: error: "),
                             HasSubstr("step_00000003.safetensors")));
  EXPECT_TRUE(std::filesystem::exists(dir + "/step_00000003.safetensors"));
}

TEST(ResumeTest, AnotherConfigurationIsRefused) {
  const std::string dir = FreshDir("other");
  OutputOf("single", FlagsFor(dir, 3));
  const Finished run =
      RunTrainer("single", FlagsFor(dir, 8, {"--resume", "--seed=9"}));
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(
      run.err,
      HasSubstr(
          "the checkpoint was made with --seed=0, this run has --seed=9"));
}

TEST(ResumeTest, AnotherConfigurationIsRefusedOnceBeforeAnyRankStarts) {
  for (const char* trainer : {"ddp", "pipeline", "parameter_server"}) {
    const std::string dir = FreshDir(std::string("other_ranks_") + trainer);
    OutputOf(trainer, FlagsFor(dir, 3, {"--nproc=2"}));
    const Finished run = RunTrainer(
        trainer, FlagsFor(dir, 8, {"--nproc=2", "--resume", "--seed=9"}));
    EXPECT_EQ(run.code, 1);
    EXPECT_EQ(run.err,
              std::string(trainer) +
                  ": error: --resume: the checkpoint was made with --seed=0, "
                  "this run has --seed=9; repeat the flags of the stopped run, "
                  "or give another --checkpoint_dir\n");
    OutputOf(trainer, FlagsFor(dir, 4, {"--nproc=2", "--resume"}));
  }
}

TEST(ResumeTest, SaysThatNothingIsLeftToDo) {
  const std::string dir = FreshDir("complete");
  OutputOf("single", FlagsFor(dir, 3));
  EXPECT_THAT(OutputOf("single", FlagsFor(dir, 3, {"--resume"})),
              HasSubstr("--resume: nothing is left to do: the run ends after "
                        "step 3 (--epochs=20, --max_steps=3)"));
  EXPECT_THAT(OutputOf("single", FlagsFor(dir, 4, {"--resume"})),
              Not(HasSubstr("nothing is left to do")));
}

TEST(ResumeTest, AnotherGradientExchangeOrCosineIsRefused) {
  const std::string dir = FreshDir("exchange");
  const Flags flags = {"--comm_hook=fp16", "--lr_schedule=cosine"};
  OutputOf("ddp", FlagsFor(dir, 3, flags));
  const Finished longer =
      RunTrainer("ddp", FlagsFor(dir, 8, Joined(flags, {"--resume"})));
  EXPECT_EQ(longer.code, 1);
  EXPECT_THAT(
      longer.err,
      HasSubstr("steps of the cosine=3, this run has steps of the cosine=8 "
                "(--epochs, --max_steps)"));
  const Finished exact =
      RunTrainer("ddp", FlagsFor(dir, 3, {"--resume", "--lr_schedule=cosine"}));
  EXPECT_EQ(exact.code, 1);
  EXPECT_THAT(exact.err, HasSubstr("--comm_hook=fp16"));
}

TEST(ResumeTest, KeepsTheLastCheckpointsAndTheModel) {
  const std::string dir = FreshDir("kept");
  OutputOf("single", FlagsFor(dir, 16, {"--keep_checkpoints=2"}));
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().filename().string().rfind("step_", 0) == 0) ++checkpoints;
  }
  EXPECT_EQ(checkpoints, 2);
  EXPECT_TRUE(std::filesystem::exists(dir + "/step_00000016.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(dir + "/model.safetensors"));
}

}  // namespace
}  // namespace rankwise

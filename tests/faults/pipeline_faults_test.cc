// A rank that dies in the middle of a step takes the pipeline with it: its
// neighbours wait for its activations, and the others for theirs.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::ContainsRegex;

class PipelineFaultTest : public ::testing::TestWithParam<int> {};

TEST_P(PipelineFaultTest, AKilledRankIsNamedAndNoneIsLeft) {
  const int rank = GetParam();
  // More steps than anyone waits for: the kill ends it.
  auto run = StartTrainer(
      "pipeline", {"--nproc=4", "--microbatches=8", "--batch_size=2",
                   "--train_size=64", "--epochs=1000000", "--eval=false",
                   "--threads=1", "--log_every=1", "--collective_timeout=10m"});
  ASSERT_TRUE(run->AwaitOutput("step", 7)) << run->Stderr();
  const std::vector<pid_t> ranks = ChildrenOf(run->pid());
  ASSERT_EQ(ranks.size(), 4u);
  const SteadyTime killed = SteadyNow();
  ASSERT_EQ(kill(ranks[static_cast<size_t>(rank)], SIGKILL), 0);
  const int code = run->Wait(absl::Seconds(20));
  std::printf("ended %.2f s after the kill\n",
              absl::ToDoubleSeconds(ElapsedSince(killed)));
  EXPECT_GT(code, 0);
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(), ContainsRegex(absl::StrCat(
                                 "rank ", rank, ".*(SIGKILL|signal 9)")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, PipelineFaultTest, ::testing::Values(1, 3),
                         [](const auto& info) {
                           return absl::StrCat("Rank", info.param);
                         });

}  // namespace
}  // namespace rankwise

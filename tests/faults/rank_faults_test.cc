// Tests ranks that die or hang anywhere on the mesh, or within a pipeline: the
// job must end within the timeout, and every other rank must report which rank
// failed and where.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/clock/steady_time.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::ContainsRegex;

struct Fault {
  std::string name;
  std::string trainer;
  Flags flags;
  int signal = SIGKILL;
  int rank = 0;
  std::string place;  // position of the rank
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

// More steps than can finish: the fault ends the job.
Flags FlagsOf(const Fault& fault) {
  return Joined(
      {"--nproc=4", "--train_size=64", "--batch_size=2", "--epochs=1000000",
       "--eval=false", "--threads=1", "--log_every=1",
       fault.signal == SIGKILL ? "--collective_timeout=10m"
                               : "--collective_timeout=5s"},
      fault.flags);
}

Flags Mesh(const Flags& flags) {
  return Joined({"--model=gpt", "--depth=2", "--width=64",
                 "--sequence_length=32", "--microbatches=2"},
                flags);
}

class RankFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(RankFaultTest, IsNamedWithItsPlaceByEveryOtherRank) {
  const Fault& fault = GetParam();
  auto run = StartTrainer(fault.trainer, FlagsOf(fault));
  const std::vector<pid_t> ranks = RanksAfterSteps(*run, 7);
  ASSERT_EQ(ranks.size(), 4u);
  const SteadyTime start = SteadyNow();
  ASSERT_EQ(kill(ranks[static_cast<size_t>(fault.rank)], fault.signal), 0);
  const int code = run->Wait(absl::Seconds(30));
  std::printf("ended %.2f s after the fault\n",
              absl::ToDoubleSeconds(ElapsedSince(start)));
  EXPECT_GT(code, 0);
  EXPECT_TRUE(AllGone(ranks));
  if (fault.signal == SIGKILL) {
    EXPECT_THAT(run->Stderr(),
                ContainsRegex(absl::StrCat("rank ", fault.rank, ".*signal 9")));
  }
  for (int other = 0; other < 4; ++other) {
    if (other == fault.rank) continue;
    EXPECT_THAT(run->Stderr(),
                ContainsRegex(absl::StrCat(
                    fault.trainer, ": rank ", other, ": error: [^\n]*rank ",
                    fault.rank, " [(]", fault.place, "[)] is (dead|stopped)")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Faults, RankFaultTest,
    ::testing::Values(
        Fault{"KilledInPp2Tp2", "hybrid", Mesh({"--pp=2", "--tp=2"}), SIGKILL,
              3, "pp 1, tp 1"},
        Fault{"StoppedInPp2Tp2", "hybrid", Mesh({"--pp=2", "--tp=2"}), SIGSTOP,
              1, "pp 0, tp 1"},
        Fault{"KilledInDp2Tp2", "hybrid", Mesh({"--tp=2"}), SIGKILL, 1,
              "dp 0, tp 1"},
        Fault{"StoppedInDp2Tp2", "hybrid", Mesh({"--tp=2"}), SIGSTOP, 2,
              "dp 1, tp 0"},
        Fault{"KilledInRing4", "hybrid", Mesh({"--cp=4"}), SIGKILL, 2, "cp 2"},
        Fault{"StoppedInTp2Ulysses2", "hybrid",
              Mesh({"--tp=2", "--cp=2", "--context=ulysses", "--width=128"}),
              SIGSTOP, 3, "cp 1, tp 1"},
        Fault{"KilledInThePipeline",
              "pipeline",
              {"--microbatches=8"},
              SIGKILL,
              1,
              "pp 1"},
        Fault{"KilledAtThePipelinesEnd",
              "pipeline",
              {"--microbatches=8"},
              SIGKILL,
              3,
              "pp 3"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace rankwise

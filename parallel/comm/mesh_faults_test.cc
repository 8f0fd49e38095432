// Failures of groups of real processes.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/test_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kRanks = 4;

// Far below the collective timeout, far above the needs of a busy machine.
constexpr absl::Duration kSoon = absl::Seconds(30);

std::vector<std::string> Scenario(const std::string& name, int victim) {
  return {Runfile("parallel/comm/test_rank"), "--scenario=" + name,
          absl::StrCat("--victim=", victim), "--collective_timeout=10m"};
}

std::unique_ptr<TestProcess> Launch(const std::string& scenario, int victim) {
  std::vector<std::string> argv = Scenario(scenario, victim);
  argv.push_back(absl::StrCat("--nproc=", kRanks));
  return std::make_unique<TestProcess>(argv);
}

// Starts ranks without a launcher, which would report a death to them.
std::vector<std::unique_ptr<TestProcess>> StartAlone(
    const std::string& scenario, int victim) {
  std::vector<std::string> argv = Scenario(scenario, victim);
  argv.push_back("--file_store=" + TemporaryPath("store"));
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<TestProcess>(
        argv,
        std::vector<std::string>{absl::StrCat("RANK=", rank),
                                 absl::StrCat("WORLD_SIZE=", kRanks),
                                 absl::StrCat("LOCAL_RANK=", rank),
                                 absl::StrCat("LOCAL_WORLD_SIZE=", kRanks),
                                 "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"}));
  }
  return ranks;
}

class VictimTest : public ::testing::TestWithParam<int> {};
class OutermostVictimTest : public VictimTest {};

// A regular expression: "rank 3 (dp 1, pp 1)".
std::string OnMesh(int rank) {
  return absl::StrCat("rank ", rank, " \\(dp ", rank / 2, ", pp ", rank % 2,
                      "\\)");
}

TEST_P(OutermostVictimTest, EveryRankOfAChainNamesTheKilledOne) {
  const auto process = Launch("kill_in_chain", GetParam());
  EXPECT_EQ(process->Wait(kSoon), 128 + SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_THAT(
        process->Stderr(),
        ContainsRegex(absl::StrCat(
            "passing messages failed on rank ", rank,
            " of 4 in (send|recv) with rank [0-9] after #0 of "
            "\\[\\[1000\\]\\] float32, .* s after it was started: rank ",
            GetParam(), " is dead: signal 9 \\(Killed\\) \\(")));
  }
}

TEST_P(VictimTest, WithoutALauncherEveryRankNamesItToo) {
  const auto ranks = StartAlone("kill_in_chain", GetParam());
  EXPECT_EQ(ranks[GetParam()]->Wait(), 128 + SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks[rank]->Wait(kSoon), 1) << "rank " << rank;
    EXPECT_THAT(
        ranks[rank]->Stderr(),
        // Ranks far from the death fail together with the near ones, not
        // after querying peers about it, which takes 2.5 s each time.
        AllOf(ContainsRegex(absl::StrCat("failed on rank ", rank,
                                         " of 4 in .* [0-3]\\.[0-9] s after it "
                                         "was started: rank ",
                                         GetParam(), " gives no sign of life")),
              Not(HasSubstr("has left")), Not(HasSubstr("failed first"))));
  }
}

TEST_P(OutermostVictimTest, EveryRankOfAMeshNamesTheKilledOne) {
  const auto ranks = StartAlone("kill_in_mesh", GetParam());
  EXPECT_EQ(ranks[GetParam()]->Wait(), 128 + SIGKILL);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank == GetParam()) continue;
    EXPECT_EQ(ranks[rank]->Wait(kSoon), 1) << "rank " << rank;
    EXPECT_THAT(
        ranks[rank]->Stderr(),
        AllOf(ContainsRegex(absl::StrCat("a step failed on ", OnMesh(rank),
                                         " of 4 in .* of group (dp|pp) "
                                         "\\(ranks [0-9], [0-9]\\) of ")),
              ContainsRegex(absl::StrCat("started: ", OnMesh(GetParam()),
                                         " gives no sign of life"))));
  }
}

INSTANTIATE_TEST_SUITE_P(All, VictimTest, ::testing::Range(0, kRanks));
INSTANTIATE_TEST_SUITE_P(All, OutermostVictimTest,
                         ::testing::Values(0, kRanks - 1));

TEST(MeshFaultsTest, ALateRankIsNamedWithItsGroup) {
  std::vector<std::string> argv = Scenario("late_in_mesh", 3);
  argv.push_back(absl::StrCat("--nproc=", kRanks));
  argv.push_back("--collective_timeout=2s");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(kSoon), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(
          ContainsRegex(
              "a step failed on rank 1 \\(dp 0, pp 1\\) of 4 in all_reduce #2 "
              "of group dp \\(ranks 1, 3\\) of \\[\\[3\\]\\] float32, .* s "
              "after "
              "it was started: rank 3 \\(dp 1, pp 1\\) did not arrive: it is "
              "alive, and its last call is all_reduce #1 of group dp "
              "\\(ranks 1, 3\\)"),
          Not(ContainsRegex("rank (0|2) \\([^)]*\\) did not arrive"))));
}

TEST(MeshFaultsTest, ASumThatNobodyJoinsDoesNotHoldUpTheExit) {
  const auto process = Launch("leave_in_the_middle", 1);
  EXPECT_EQ(process->Wait(kSoon), 0) << process->Stderr();
}

}  // namespace
}  // namespace rankwise

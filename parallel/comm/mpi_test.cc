// The MPI backend in real processes, started by rankwise's launcher or mpirun.
#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/test_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// 5 s for a job to end after losing a rank, doubled for a loaded machine.
constexpr absl::Duration kEnd = absl::Seconds(10);

class MpiTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why_not = WhyNoMpi();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
};

class MpiRanksTest : public MpiTest,
                     public ::testing::WithParamInterface<int> {};

std::vector<std::string> Ranks(int count, const std::string& scenario) {
  return {Runfile("parallel/comm/test_rank"), absl::StrCat("--nproc=", count),
          "--backend=mpi", "--scenario=" + scenario};
}

// comm_bench_mpi_test calls every collective with every type.
TEST_P(MpiRanksTest, InPlaceOnListsFromAnyRankAndByFuture) {
  TestProcess process(Ranks(GetParam(), "variants"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

INSTANTIATE_TEST_SUITE_P(All, MpiRanksTest, ::testing::Values(1, 2, 3, 4));

// docs/comm_bench.md has the command for 10,000 calls in each group.
TEST_F(MpiTest, TwoGroupsCallWithoutWaitingForEachOther) {
  TestProcess process(Ranks(3, "mixed"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

TEST_F(MpiTest, RanksThatMpirunStartsConnect) {
  if (access("/usr/bin/mpirun", X_OK) != 0) GTEST_SKIP() << "no mpirun";
  std::vector<std::string> argv = {
      "/usr/bin/mpirun", "-n", "2", "--bind-to", "none", "--oversubscribe"};
  for (const std::string& word : Ranks(2, "all")) argv.push_back(word);
  TestProcess process(
      argv, {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  EXPECT_TRUE(
      process.AwaitOutput("mean 0.5 root 1 last 10", 2, absl::Seconds(1)))
      << process.Stdout();
}

// UCX, the transport for InfiniBand, limits tags to 2^23 - 1.
TEST_F(MpiTest, ControlMessagesHaveTagsThatUcxCarriesAndLargerOnesAreRefused) {
  TestProcess info({"/bin/sh", "-c", "ompi_info --parsable"});
  if (info.Wait() != 0 ||
      info.Stdout().find("mca:pml:ucx:version") == std::string::npos) {
    GTEST_SKIP() << "this Open MPI was built without UCX";
  }
  TestProcess process(Ranks(2, "control"),
                      {"OMPI_MCA_pml=ucx", "OMPI_MCA_pml_ucx_tls=any",
                       "OMPI_MCA_pml_ucx_devices=any"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stdout(),
              AllOf(HasSubstr("received 7\n"), HasSubstr("gathered a text\n")));
  EXPECT_THAT(process.Stderr(),
              HasSubstr("the message's tag is 1073741824, and this MPI "
                        "carries 0 to 8388607; with OpenMPI"));
}

TEST_F(MpiTest, ACreationOfAGroupThatBlocksEndsAndHoldsNoTimeoutUp) {
  std::vector<std::string> argv = Ranks(2, "stop_in_group_creation");
  argv.push_back("--collective_timeout=1s");
  argv.push_back("--file_store=" + TemporaryPath("meeting"));
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(absl::Seconds(20)), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(ContainsRegex("all_reduce failed on rank 0 .*timed out after 1"),
            HasSubstr("MPI_Comm_create_group has not returned within 4s")));
}

TEST_F(MpiTest, MpiIsNotStartedASecondTimeAfterAFailure) {
  std::vector<std::string> argv = Ranks(2, "lost_store");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 1) << process.Stderr();
  EXPECT_TRUE(process.AwaitOutput("by MPI failed: the store is lost", 4,
                                  absl::Seconds(1)))
      << process.Stdout();
}

TEST_F(MpiTest, RanksThatNobodyConnectsAreRefused) {
  TestProcess process(
      {Runfile("parallel/comm/test_rank"), "--backend=mpi"},
      {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2",
       "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              HasSubstr("backend=mpi needs ranks started by --nproc, mpirun or "
                        "srun --mpi=pmix; this rank was started by torchrun, "
                        "and PMIX_RANK is missing or not its rank"));
}

TEST_F(MpiTest, AKilledRankIsNamedAndEverythingEnds) {
  TestProcess process(Ranks(3, "kill"));
  ASSERT_TRUE(process.AwaitOutput("sum 6", 3)) << process.Stderr();
  const SteadyTime start = SteadyNow();
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_LT(ElapsedSince(start), kEnd);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(ContainsRegex("all_reduce failed on rank 0 of 3 in all_reduce "
                          "#[0-9]+ of \\[\\[1000\\]\\] float32"),
            HasSubstr("rank 1 is dead: signal 9 (Killed)")));
  EXPECT_TRUE(AllGone(PidsIn(process.Stdout())));
}

TEST_F(MpiTest, AKilledRankFailsNoGroupWithoutIt) {
  TestProcess process(Ranks(3, "go_on"));
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  EXPECT_THAT(process.Stdout(), AllOf(HasSubstr("rank 0 went on\n"),
                                      HasSubstr("rank 1 went on\n")))
      << process.Stderr();
}

TEST_F(MpiTest, EveryRankOfAMeshNamesTheKilledOne) {
  std::vector<std::string> argv = Ranks(4, "kill_in_mesh");
  argv.push_back("--victim=3");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 128 + SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(process.Stderr(),
                ContainsRegex(absl::StrCat(
                    "a step failed on rank ", rank,
                    " .*: rank 3 \\(dp 1, pp 1\\) is dead: signal 9")));
  }
}

TEST_F(MpiTest, ALateRankIsNamedAfterTheTimeout) {
  std::vector<std::string> argv = Ranks(2, "late");
  argv.push_back("--collective_timeout=2s");
  TestProcess process(argv);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              AllOf(ContainsRegex("on rank 0 of 2 in all_reduce #2 of "
                                  "\\[\\[7, 5\\]\\] float32"),
                    HasSubstr("rank 1 did not arrive: it is alive")));
}

TEST_F(MpiTest, ARankThatLeavesIsNamed) {
  TestProcess process(Ranks(2, "leave"));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(), AllOf(HasSubstr("rank 1 has left the job"),
                                      Not(HasSubstr("timed out"))));
}

TEST_F(MpiTest, ASumThatNobodyJoinsDoesNotHoldUpTheExit) {
  TestProcess process(Ranks(4, "leave_in_the_middle"));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

}  // namespace
}  // namespace rankwise

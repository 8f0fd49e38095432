// Communicators of real processes: results and failures.
#include "parallel/comm/communicator.h"

#include <unistd.h>

#include <string>
#include <tuple>
#include <vector>

#include "ATen/ops/full.h"
#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/test_process.h"
#include "parallel/launch/network.h"
#include "parallel/launch/rank_env.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> Ranks(int count, const std::string& scenario,
                               const std::vector<std::string>& flags = {}) {
  std::vector<std::string> argv = {Runfile("parallel/comm/test_rank"),
                                   absl::StrCat("--nproc=", count),
                                   absl::StrCat("--scenario=", scenario)};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

class WorldTest : public ::testing::TestWithParam<std::tuple<int, bool>> {};

TEST_P(WorldTest, CollectivesGiveTheRightResults) {
  const auto [world_size, by_file] = GetParam();
  std::vector<std::string> flags;
  if (by_file) flags = {"--file_store=" + TemporaryPath("store")};
  TestProcess process(Ranks(world_size, "all", flags));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
  const std::string expected =
      absl::StrFormat("mean %.1f root %d last %d", (world_size - 1) / 2.0,
                      world_size - 1, 10 * (world_size - 1));
  EXPECT_TRUE(process.AwaitOutput(expected, world_size, absl::Seconds(1)))
      << process.Stdout();
}

INSTANTIATE_TEST_SUITE_P(All, WorldTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Bool()));

TEST(CommunicatorTest, ATimeoutNamesTheCollectiveAndTheLateRank) {
  TestProcess process(Ranks(3, "late", {"--collective_timeout=2s"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              AllOf(ContainsRegex("on rank 0 of 3 in all_reduce #2 of "
                                  "\\[\\[7, 5\\]\\] float32"),
                    HasSubstr("rank 1 did not arrive: it is alive, and its "
                              "last call is all_reduce #1 of [[2, 3]] "
                              "float32")));
}

TEST(CommunicatorTest, ARankThatLeavesIsNamed) {
  TestProcess process(Ranks(2, "leave"));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(), HasSubstr("rank 1 has left the job"));
}

TEST(CommunicatorTest, CheckedCollectivesNameBothSidesOfAMismatch) {
  TestProcess process(Ranks(2, "different_calls", {"--check_collectives"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(),
              AllOf(HasSubstr("Detected mismatch between collectives"),
                    HasSubstr("ALLREDUCE"), HasSubstr("BROADCAST"),
                    HasSubstr("make all ranks call the same collectives")));
}

TEST(CommunicatorTest, CheckedCollectivesNameBothShapes) {
  TestProcess process(Ranks(2, "different_shapes", {"--check_collectives"}));
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(
      process.Stderr(),
      AllOf(HasSubstr("Detected mismatch between collectives"),
            HasSubstr("TensorShape=[4]"), HasSubstr("TensorShape=[5]")));
}

TEST(CommunicatorTest, CheckedCollectivesThatAgreePass) {
  TestProcess process(Ranks(2, "all", {"--check_collectives"}));
  EXPECT_EQ(process.Wait(), 0) << process.Stderr();
}

std::vector<std::string> RankOfTwo(int rank, int port) {
  return {
      absl::StrCat("RANK=", rank),       "WORLD_SIZE=2",
      absl::StrCat("LOCAL_RANK=", rank), "LOCAL_WORLD_SIZE=2",
      "MASTER_ADDR=127.0.0.1",           absl::StrCat("MASTER_PORT=", port)};
}

// Stopped in its first second, before it published its first collective.
TEST(CommunicatorTest, NothingIsSaidOfWhatAStoppedRankStartedUnheard) {
  const std::vector<std::string> argv = {
      Runfile("parallel/comm/test_rank"), "--scenario=stop",
      "--collective_timeout=2s", "--file_store=" + TemporaryPath("store")};
  TestProcess first(argv, RankOfTwo(0, 1));
  TestProcess stopped(argv, RankOfTwo(1, 1));
  EXPECT_EQ(first.Wait(), 1);
  EXPECT_THAT(first.Stderr(),
              AllOf(HasSubstr("rank 1 gives no sign of life"),
                    Not(HasSubstr("has not started any collective"))));
}

TEST(CommunicatorTest, AListenerThatNeverAnswersIsNotWaitedForForever) {
  // The kernel accepts connections on its behalf.
  const absl::StatusOr<Listener> silent = Listen(/*loopback_only=*/true, 0);
  ASSERT_TRUE(silent.ok()) << silent.status();
  TestProcess process(
      {Runfile("parallel/comm/test_rank"), "--rendezvous_timeout=2s"},
      RankOfTwo(1, silent->port));
  EXPECT_EQ(process.Wait(absl::Seconds(20)), 1);
  EXPECT_THAT(
      process.Stderr(),
      HasSubstr(absl::StrCat("rendezvous of rank 1 of 2: the store at "
                             "127.0.0.1:",
                             silent->port,
                             " has accepted a connection and not answered "
                             "within 2s: another program is probably listening "
                             "there; choose another MASTER_PORT")));
  close(silent->fd);
}

// 192.0.2.0/24 is reserved for documentation (RFC 5737).
TEST(CommunicatorTest, AnAddressOfAnotherMachineIsNamedByTheRankThatServes) {
  TestProcess process(
      {Runfile("parallel/comm/test_rank"), "--rendezvous_timeout=1s"},
      {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
       "MASTER_ADDR=192.0.2.1", "MASTER_PORT=29517"});
  EXPECT_EQ(process.Wait(absl::Seconds(20)), 1);
  EXPECT_THAT(process.Stderr(),
              HasSubstr("MASTER_ADDR 192.0.2.1 is not an address of this "
                        "machine, where rank 0 serves the store, and rank 1 "
                        "has not arrived at"));
}

TEST(CommunicatorTest, AMissingRankIsNamed) {
  TestProcess process(
      {Runfile("parallel/comm/test_rank"), "--rendezvous_timeout=1s",
       "--file_store=" + TemporaryPath("store")},
      {"RANK=1", "WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.Stderr(), HasSubstr("ranks 0, 2 have not arrived at"));
}

TEST(CommunicatorTest, AloneItNeedsNoLauncher) {
  const auto comm = Communicator::Create(RankEnv{}, CommConfig{});
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_EQ((*comm)->backend(), "shm");
  EXPECT_EQ((*comm)->last_collective_start_ns(), 0);
  at::Tensor tensor = at::full({2}, 5.0);
  EXPECT_TRUE((*comm)->AllReduce(tensor, ReduceOp::kAverage).ok());
  EXPECT_EQ(tensor[1].item<double>(), 5.0);
  EXPECT_GT((*comm)->last_collective_start_ns(), 0);
  EXPECT_TRUE((*comm)->Barrier().ok());
}

TEST(CommunicatorTest, TheFakeBackendSimulatesAnyWorldSize) {
  RankEnv env;
  env.rank = 3;
  env.world_size = 1000;
  CommConfig config;
  config.backend = "fake";
  const auto comm = Communicator::Create(env, config);
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_EQ((*comm)->backend(), "fake");
  at::Tensor tensor = at::full({2}, 2.0);
  EXPECT_TRUE((*comm)->AllReduce(tensor).ok());
  EXPECT_EQ(tensor[0].item<double>(), 2000.0);
  EXPECT_GT((*comm)->last_collective_start_ns(), 0);
}

TEST(CommunicatorTest, RefusesWhatCannotBeReduced) {
  const auto comm = Communicator::Create(RankEnv{}, CommConfig{});
  ASSERT_TRUE(comm.ok()) << comm.status();
  at::Tensor integers = at::ones({2}, at::kLong);
  EXPECT_THAT(
      std::string((*comm)->AllReduce(integers, ReduceOp::kAverage).message()),
      HasSubstr("the average of integers"));
  at::Tensor undefined;
  EXPECT_EQ((*comm)->AllReduce(undefined).code(),
            absl::StatusCode::kInvalidArgument);
  at::Tensor transposed = at::ones({2, 3}).t();
  EXPECT_EQ((*comm)->Broadcast(transposed, 0).code(),
            absl::StatusCode::kInvalidArgument);
  at::Tensor tensor = at::ones({2});
  EXPECT_THAT(std::string((*comm)->Broadcast(tensor, 1).message()),
              HasSubstr("root 1 is not a rank of 1"));
}

TEST(CommunicatorTest, RefusesUnknownNames) {
  CommConfig config;
  config.backend = "glue";
  EXPECT_THAT(
      std::string(Communicator::Create(RankEnv{}, config).status().message()),
      HasSubstr("backend='glue' is unknown"));
}

}  // namespace
}  // namespace rankwise

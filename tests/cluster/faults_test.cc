// Tests failing links and vanishing hosts: the remaining ranks report what
// failed and where, and end in time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/cluster/cluster.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kDdp[] =
    "trainers/ddp --model=mlp --train_size=256 --batch_size=32 --eval=false "
    "--threads=1 --log_every=1 ";

// Starts two hosts with two ranks each, and more steps than can finish.
Ranks StartLongJob(const Cluster& cluster, const std::string& timeout) {
  Ranks ranks = StartRanks(
      cluster, 2, 2,
      absl::StrCat(kDdp, "--epochs=1000000 --collective_timeout=", timeout));
  EXPECT_TRUE(ranks[0]->AwaitOutput("step", 5)) << ranks[0]->Stderr();
  return ranks;
}

using FaultsTest = ClusterTest;

TEST_F(FaultsTest, AHostThatVanishesIsNamedByTheSurvivors) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().Destroy(2);
  ExpectErrors(ranks, {0, 1},
               "rank 2 [(]dp 2, host2[)] gives no sign of life [^\n]*rank 3 "
               "[(]dp 3, host2[)] gives no sign of life");
  EXPECT_THAT(cluster().ProgramsOn(1), IsEmpty());
}

TEST_F(FaultsTest, TheHostOfRankZeroTakesTheStoreAlong) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().Destroy(1);
  ExpectErrors(ranks, {2, 3},
               "the ranks' store at host1:29500 does not answer [^\n]*its "
               "machine cut off from this one");
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST_F(FaultsTest, ALinkThatStaysDownEndsBothSides) {
  const Ranks ranks = StartLongJob(cluster(), "5s");
  cluster().SetLink(2, false);
  ExpectErrors(ranks, {0, 1}, "rank 2 [(]dp 2, host2[)] gives no sign of life");
  ExpectErrors(ranks, {2, 3},
               "the ranks' store at host1:29500 does not answer");
  EXPECT_THAT(cluster().ProgramsOn(1), IsEmpty());
  EXPECT_THAT(cluster().ProgramsOn(2), IsEmpty());
}

TEST_F(FaultsTest, ALinkThatComesBackInTimeCostsOnlyTime) {
  Ranks ranks = StartRanks(cluster(), 2, 2, absl::StrCat(kDdp, "--epochs=40"));
  ASSERT_TRUE(ranks[0]->AwaitOutput("step", 5)) << ranks[0]->Stderr();
  cluster().SetLink(2, false);
  absl::SleepFor(absl::Seconds(3));
  const std::string before = ranks[0]->Stdout();
  absl::SleepFor(absl::Milliseconds(500));
  EXPECT_EQ(ranks[0]->Stdout(), before);  // it waits
  EXPECT_THAT(before, Not(HasSubstr("epoch 40 mean training loss")));
  cluster().SetLink(2, true);
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  EXPECT_THAT(ranks[0]->Stdout(), HasSubstr("epoch 40 mean training loss"));
}

}  // namespace
}  // namespace rankwise

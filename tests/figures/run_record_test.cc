// Tests the run record written by the trainers.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Recorded {
  RunRecord run;  // rank 0's
  std::string console;
};

RunRecord RunOf(const std::string& path, int64_t rank) {
  for (const RunRecord& run : RecordsOf<RunRecord>(path)) {
    if (run.rank == rank) return run;
  }
  ADD_FAILURE() << path << " has no run record of rank " << rank;
  return {};
}

Recorded Record4Steps(const std::string& trainer, const Flags& flags,
                      const std::vector<std::string>& environment = {}) {
  const std::string path = absl::StrCat(TemporaryPath(trainer), ".jsonl");
  const std::string out =
      OutputOf(trainer,
               Joined(flags, {"--train_size=64", "--test_size=16", "--epochs=1",
                              "--batch_size=8", "--max_steps=4", "--threads=1",
                              "--log_every=2", "--record=" + path}),
               environment);
  return {RunOf(path, 0), out};
}

// Does not use `bazel run`, which would set the workspace's path.
TEST(RunRecordTest, NamesTheCodeUnderEveryLauncher) {
  const RunRecord single =
      Record4Steps(
          "single", {},
          {"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1",
           "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"})
          .run;
  EXPECT_THAT(single.source_hash, MatchesRegex("[0-9a-f]{16}"));
  EXPECT_THAT(single.git_commit, MatchesRegex("([0-9a-f]{40})?"));
  EXPECT_EQ(single.git_state == "unknown", single.git_commit.empty());
  const RunRecord pipeline = Record4Steps("pipeline", {"--nproc=2"}).run;
  EXPECT_EQ(pipeline.source_hash, single.source_hash);
  EXPECT_EQ(pipeline.git_commit, single.git_commit);
  EXPECT_EQ(pipeline.git_state, single.git_state);
}

TEST(RunRecordTest, SaysWhatAnExampleIsAndTheConsoleCountsThat) {
  struct Case {
    Flags flags;
    std::string example;
    int64_t tokens_per_example;
    std::string rate;
  };
  for (const Case& c :
       std::vector<Case>{{{"--model=simple_cnn"}, "image", 0, " images/s "},
                         {{"--model=gpt", "--sequence_length=16"},
                          "sequence",
                          16,
                          " tokens/s "},
                         {{"--model=linear"}, "", 0, " examples/s "}}) {
    const Recorded recorded = Record4Steps("single", c.flags);
    EXPECT_EQ(recorded.run.example, c.example);
    EXPECT_EQ(recorded.run.tokens_per_example, c.tokens_per_example);
    EXPECT_THAT(recorded.console, HasSubstr(c.rate));
  }
}

// Runs four processes, started by two agents on this machine, with `flags`;
// rank i has local_ranks[i]. Returns the last rank's record and rank 0's
// console output.
Recorded OnTwoHosts(const std::string& trainer,
                    const std::vector<int>& local_ranks, const Flags& flags) {
  const std::string path = absl::StrCat(TemporaryPath(trainer), ".jsonl");
  const Flags all = Joined(
      flags, {"--train_size=64", "--test_size=16", "--epochs=1",
              "--batch_size=2", "--max_steps=3", "--threads=1", "--eval=false",
              "--file_store=" + path + ".store", "--record=" + path});
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(StartTrainer(
        trainer, all,
        {absl::StrCat("RANK=", rank), "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2",
         absl::StrCat("LOCAL_RANK=", local_ranks[rank]),
         "GLOO_SOCKET_IFNAME=lo"}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  return {RunOf(path, 3), ranks[0]->Stdout()};
}

TEST(RunRecordTest, RanksKnowTheirHostAndSumWithinItFirst) {
  const Recorded flat =
      OnTwoHosts("ddp", {0, 1, 0, 1}, {"--model=mlp", "--all_reduce=flat"});
  EXPECT_EQ(flat.run.host_index, 1);
  EXPECT_EQ(flat.run.hosts, 2);
  EXPECT_EQ(flat.run.ranks_on_host, 2);
  const Recorded hierarchical = OnTwoHosts(
      "ddp", {0, 1, 0, 1}, {"--model=mlp", "--all_reduce=hierarchical"});
  EXPECT_THAT(hierarchical.console,
              HasSubstr("all-reduce: hierarchical, over 2 hosts of 2 ranks"));
}

TEST(RunRecordTest, TensorParallelRanksShareAHostHoweverTheyAreSpread) {
  const Recorded hybrid =
      OnTwoHosts("hybrid", {0, 0, 1, 1},
                 {"--model=gpt", "--sequence_length=16", "--tp=2"});
  EXPECT_EQ(hybrid.run.host_index, 1);
  EXPECT_THAT(hybrid.console, HasSubstr("dp crosses nodes of 2 ranks"));
  EXPECT_THAT(hybrid.console, Not(HasSubstr("tp crosses")));
}

}  // namespace
}  // namespace rankwise

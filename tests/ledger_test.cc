// The ledger of what the trainers really record.

#include "analysis/ledger/ledger.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/run_trace.h"
#include "tests/trained.h"
#include "tests/trainer_process.h"

namespace rankwise {
namespace {

// Of 25 recorded steps, those after the fifth.
Ledger LedgerOfRun(const std::string& trainer, std::vector<std::string> flags) {
  const std::string record = FreshDir("ledger") + "/run.jsonl";
  flags.insert(flags.end(),
               {"--max_steps=25", "--eval=false", "--train_size=2048",
                "--threads=1", "--record=" + record});
  const Finished run = RunTrainer(trainer, flags);
  EXPECT_EQ(run.code, 0) << run.err;
  const auto runs = LoadRuns(record);
  EXPECT_TRUE(runs.ok()) << runs.status();
  if (!runs.ok() || runs->size() != 1) return Ledger();
  const auto ledger = MeasureLedger((*runs)[0], {5});
  EXPECT_TRUE(ledger.ok()) << ledger.status();
  return ledger.ok() ? *ledger : Ledger();
}

void ExpectClosed(const Ledger& ledger, size_t places) {
  EXPECT_EQ(ledger.ranks.size(), places);
  EXPECT_LE(ledger.median_residual_share, 0.05);
  EXPECT_TRUE(ledger.separates_bubble);
  for (const RankLedger& rank : ledger.ranks) {
    EXPECT_GT(rank.parts.compute_seconds, 0);
    EXPECT_GE(rank.parts.exposed_comm_seconds, 0);
    EXPECT_GE(rank.parts.bubble_seconds, 0);
    EXPECT_GE(rank.parts.data_wait_seconds, 0);
  }
}

TEST(LedgerTest, ClosesForASingleDevice) {
  const Ledger ledger = LedgerOfRun("single", {"--batch_size=32"});
  ExpectClosed(ledger, 1);
  EXPECT_EQ(ledger.critical.exposed_comm_seconds, 0);
}

TEST(LedgerTest, ClosesForDataParallelism) {
  const Ledger ledger = LedgerOfRun("ddp", {"--nproc=2", "--batch_size=16"});
  ExpectClosed(ledger, 2);
  EXPECT_GT(ledger.critical.exposed_comm_seconds, 0);
  EXPECT_EQ(ledger.critical.bubble_seconds, 0);
}

TEST(LedgerTest, ClosesForModelParallelism) {
  ExpectClosed(LedgerOfRun("model_parallel", {"--nproc=2", "--batch_size=32"}),
               2);
  ExpectClosed(
      LedgerOfRun("model_parallel", {"--devices=cpu,cpu", "--batch_size=32"}),
      2);
}

TEST(LedgerTest, ClosesForAPipeline) {
  const Ledger ledger = LedgerOfRun(
      "pipeline",
      {"--nproc=2", "--schedule=1f1b", "--microbatches=4", "--batch_size=16"});
  ExpectClosed(ledger, 2);
  EXPECT_GT(ledger.critical.bubble_seconds, 0);
}

}  // namespace
}  // namespace rankwise

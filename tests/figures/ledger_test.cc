// Tests the ledger with records of the real trainers.

#include "analysis/ledger/ledger.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "analysis/runs/run_trace.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

// Uses the steps after the fifth, of 25 recorded ones.
Ledger LedgerOfRun(const std::string& trainer, const Flags& flags) {
  const std::string record = FreshDir("ledger") + "/run.jsonl";
  OutputOf(trainer,
           Joined(flags, {"--max_steps=25", "--eval=false", "--train_size=2048",
                          "--threads=1", "--record=" + record}));
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
    for (const ExposedAxis& axis : kExposedAxes) {
      EXPECT_GE(rank.parts.*axis.seconds, 0) << axis.axis;
    }
    EXPECT_GE(rank.parts.bubble_seconds, 0);
    EXPECT_GE(rank.parts.data_wait_seconds, 0);
  }
}

TEST(LedgerTest, ClosesForASingleDevice) {
  const Ledger ledger = LedgerOfRun("single", {"--batch_size=32"});
  ExpectClosed(ledger, 1);
  EXPECT_EQ(ledger.critical.ExposedSeconds(), 0);
}

TEST(LedgerTest, ClosesForDataParallelism) {
  const Ledger ledger = LedgerOfRun("ddp", {"--nproc=2", "--batch_size=16"});
  ExpectClosed(ledger, 2);
  EXPECT_GT(ledger.critical.exposed_dp_seconds, 0);
  EXPECT_EQ(ledger.critical.bubble_seconds, 0);
}

TEST(LedgerTest, ClosesForReplicasInOneProcess) {
  const Ledger ledger =
      LedgerOfRun("data_parallel", {"--replicas=2", "--batch_size=32"});
  ExpectClosed(ledger, 1);
  EXPECT_EQ(ledger.first_device_seconds.size(), 6u);
  double copies = 0;
  for (const auto& [part, seconds] : ledger.first_device_seconds) {
    EXPECT_GT(seconds, 0) << part;
    if (part != "loss") copies += seconds;
  }
  EXPECT_NEAR(copies, ledger.critical.exposed_dp_seconds, 1e-9);
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
  EXPECT_GT(ledger.critical.exposed_pp_seconds, 0);
}

TEST(LedgerTest, TellsTheAxesOfReplicatedPipelinesApart) {
  const Ledger ledger = LedgerOfRun(
      "pipeline", {"--nproc=4", "--pp=2", "--dp=2", "--microbatches=2",
                   "--batch_size=8", "--traffic_steps=2"});
  EXPECT_EQ(ledger.ranks.size(), 4u);
  ASSERT_GE(ledger.communication.size(), 2u);
  const AxisCommunication& pp = ledger.communication[0];
  EXPECT_EQ(pp.axis, "pp");
  // A message per micro-batch, with 4096 numbers per example; the last stage
  // sends its loss to the first.
  EXPECT_EQ(pp.calls, 2.5);
  EXPECT_NEAR(pp.bytes, 2 * 8 * 4096 * 4, 4);
  EXPECT_GT(pp.wait_seconds, 0);
  const AxisCommunication& dp = ledger.communication[1];
  EXPECT_EQ(dp.axis, "dp");
  EXPECT_GE(dp.calls, 1);
  EXPECT_GT(dp.wait_seconds, 0);
}

// The batch is larger than the data set. The console's clock includes the time
// between epochs, so its rate is the lower one.
TEST(ConsoleTest, CountsTheExamplesThereAre) {
  constexpr int kEpochs = 6, kExamples = 100;
  const std::string record = FreshDir("rate") + "/run.jsonl";
  const std::string out =
      OutputOf("single", {"--train_size=100", "--batch_size=6400", "--epochs=6",
                          "--eval=false", "--threads=1", "--record=" + record});
  double seconds = 0;  // without the first step, which is warm-up
  for (const EpochRecord& epoch : RecordsOf<EpochRecord>(record)) {
    if (epoch.epoch > 1) seconds += epoch.seconds;
  }
  const std::string last_line = out.substr(out.rfind("  loss "));
  double loss = 0, rate = 0;
  ASSERT_EQ(sscanf(last_line.c_str(), "  loss %lf %lf", &loss, &rate), 2)
      << last_line;
  EXPECT_GT(rate, 0);
  EXPECT_LE(rate, (kEpochs - 1) * kExamples / seconds + 1);
}

}  // namespace
}  // namespace rankwise

// Training with communication left out, for comparison.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

std::vector<std::string> With(std::vector<std::string> more) {
  more.insert(more.end(), {"--train_size=48", "--test_size=4", "--batch_size=4",
                           "--epochs=1"});
  return more;
}

struct Outcome {
  Finished run;
  std::vector<std::map<int64_t, double>> losses;  // by rank, then step
  std::vector<StepRecord> steps;
  std::vector<ScheduleRecord> schedules;
  std::vector<RecordedTransfer> transfers;
  int evaluations = 0;
};

Outcome TrainRecorded(const std::string& trainer, int ranks,
                      std::vector<std::string> flags) {
  const std::string record = FreshDir("skip") + "/run.jsonl";
  flags.push_back("--record=" + record);
  if (ranks > 1) flags.push_back("--nproc=" + std::to_string(ranks));
  Outcome outcome;
  outcome.run = RunTrainer(trainer, With(flags));
  EXPECT_EQ(outcome.run.code, 0) << outcome.run.err;
  for (int rank = 0; rank < ranks; ++rank)
    outcome.losses.push_back(LossesOf(record, rank));
  for (const Record& each : RecordsIn(record)) {
    if (auto* step = std::get_if<StepRecord>(&each))
      outcome.steps.push_back(*step);
    if (auto* schedule = std::get_if<ScheduleRecord>(&each))
      outcome.schedules.push_back(*schedule);
    if (auto* traffic = std::get_if<TrafficRecord>(&each)) {
      outcome.transfers.insert(outcome.transfers.end(), traffic->events.begin(),
                               traffic->events.end());
    }
    outcome.evaluations += std::holds_alternative<EvalRecord>(each);
  }
  return outcome;
}

TEST(SkipCommunicationTest, DdpsRanksTrainByThemselves) {
  for (const std::string engine : {"--ddp=reducer", "--ddp=simple"}) {
    SCOPED_TRACE(engine);
    const std::vector<std::string> flags = {engine, "--max_steps=3"};
    const Outcome whole = TrainRecorded("ddp", 2, flags);
    std::vector<std::string> skipping = flags;
    skipping.insert(skipping.end(),
                    {"--skip_communication", "--traffic_steps=1"});
    const Outcome skipped = TrainRecorded("ddp", 2, skipping);
    EXPECT_NE(skipped.run.out.find("warning: --skip_communication"),
              std::string::npos);
    ASSERT_EQ(skipped.steps.size(), whole.steps.size());
    for (const StepRecord& step : skipped.steps) {
      EXPECT_GT(step.step_seconds, 0);
      EXPECT_EQ(step.exposed_comm_seconds, 0);
    }
    EXPECT_TRUE(skipped.transfers.empty());
    EXPECT_EQ(whole.evaluations, 1);
    EXPECT_EQ(skipped.evaluations, 0);
    for (size_t rank : {0, 1}) {
      // Before the first update the models are still the same.
      EXPECT_EQ(skipped.losses[rank].at(1), whole.losses[rank].at(1));
      EXPECT_NE(skipped.losses[rank].at(3), whole.losses[rank].at(3));
    }
  }
}

TEST(SkipCommunicationTest, StagesSendOneNumberInTheirOrder) {
  struct Case {
    std::string trainer;
    int ranks;
    std::vector<std::string> flags;
  };
  for (const Case& each :
       {Case{"pipeline", 2, {"--microbatches=3"}},
        Case{"pipeline", 4, {"--microbatches=3", "--dp=2", "--model=gpt"}},
        Case{"model_parallel", 2, {"--accumulate=3"}}}) {
    SCOPED_TRACE(each.trainer + " x" + std::to_string(each.ranks));
    std::vector<std::string> flags = each.flags;
    flags.insert(flags.end(), {"--skip_communication", "--traffic_steps=1"});
    const Outcome skipped = TrainRecorded(each.trainer, each.ranks, flags);
    for (const ScheduleRecord& step : skipped.schedules) {
      EXPECT_EQ(step.sent_bytes, 3 * 4);
      EXPECT_EQ(step.received_bytes, 3 * 4);
      EXPECT_GT(step.busy_seconds, 0);
    }
    EXPECT_FALSE(skipped.schedules.empty());
    for (const RecordedTransfer& transfer : skipped.transfers)
      EXPECT_EQ(transfer.bytes, 4) << transfer.op;
    EXPECT_EQ(skipped.evaluations, 0);
    for (const StepRecord& step : skipped.steps)
      EXPECT_TRUE(std::isfinite(step.loss)) << "step " << step.step;
  }
}

TEST(SkipCommunicationTest, OneProcessCopiesOneNumberPerMessage) {
  const Outcome skipped = TrainRecorded(
      "model_parallel", 1, {"--accumulate=3", "--skip_communication"});
  ASSERT_FALSE(skipped.schedules.empty());
  for (const ScheduleRecord& step : skipped.schedules) {
    EXPECT_EQ(step.sent_bytes, 3 * 4);
    EXPECT_EQ(step.received_bytes, 3 * 4);
    EXPECT_GT(step.busy_seconds, 0);
  }
}

TEST(SkipCommunicationTest, RefusedWhereItMakesNoSense) {
  struct Case {
    std::string trainer, flag, complaint;
  };
  const std::string dir = FreshDir("skip_refused");
  for (const Case& each :
       {Case{"single", "--seed=0", "or communicate nothing"},
        Case{"ddp", "--checkpoint_dir=" + dir, "is no trained model"},
        Case{"ddp", "--check_divergence_every=1", "parameters diverge"},
        Case{"ddp", "--comm_hook=fp16", "excludes --skip_communication"},
        Case{"ddp", "--find_unused_parameters",
             "ranks exchange which parameters they are"},
        Case{"pipeline", "--checkpoint_dir=" + dir, "is no trained model"}}) {
    const Finished run =
        RunTrainer(each.trainer, With({"--skip_communication", each.flag}));
    EXPECT_EQ(run.code, 2) << each.flag;
    EXPECT_NE(run.err.find(each.complaint), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace rankwise

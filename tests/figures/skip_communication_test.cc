// Tests training without communication, for comparison.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

Flags With(const Flags& more) {
  return Joined(more, {"--train_size=48", "--test_size=4", "--batch_size=4",
                       "--epochs=1"});
}

struct Outcome {
  std::string out;
  std::vector<Losses> losses;  // by rank
  std::vector<StepRecord> steps;
  std::vector<ScheduleRecord> schedules;
  std::vector<RecordedTransfer> transfers;
  std::vector<EvalRecord> evaluations;
};

Outcome TrainRecorded(const std::string& trainer, int ranks, Flags flags) {
  const std::string record = FreshDir("skip") + "/run.jsonl";
  flags.push_back("--record=" + record);
  if (ranks > 1) flags.push_back("--nproc=" + std::to_string(ranks));
  Outcome outcome;
  outcome.out = OutputOf(trainer, With(flags));
  for (int rank = 0; rank < ranks; ++rank)
    outcome.losses.push_back(LossesOf(record, rank));
  outcome.steps = RecordsOf<StepRecord>(record);
  outcome.schedules = RecordsOf<ScheduleRecord>(record);
  outcome.evaluations = RecordsOf<EvalRecord>(record);
  for (const auto& traffic : RecordsOf<TrafficRecord>(record)) {
    outcome.transfers.insert(outcome.transfers.end(), traffic.events.begin(),
                             traffic.events.end());
  }
  return outcome;
}

TEST(SkipCommunicationTest, DdpsRanksTrainByThemselves) {
  for (const std::string engine : {"--ddp=reducer", "--ddp=simple"}) {
    SCOPED_TRACE(engine);
    const Flags flags = {engine, "--max_steps=3"};
    const Outcome whole = TrainRecorded("ddp", 2, flags);
    const Outcome skipped = TrainRecorded(
        "ddp", 2, Joined(flags, {"--skip_communication", "--traffic_steps=1"}));
    EXPECT_NE(skipped.out.find("warning: --skip_communication"),
              std::string::npos);
    ASSERT_EQ(skipped.steps.size(), whole.steps.size());
    for (const StepRecord& step : skipped.steps) {
      EXPECT_GT(step.step_seconds, 0);
      EXPECT_EQ(step.exposed_comm_seconds, 0);
    }
    EXPECT_TRUE(skipped.transfers.empty());
    EXPECT_EQ(whole.evaluations.size(), 1u);
    EXPECT_TRUE(skipped.evaluations.empty());
    for (size_t rank : {0, 1}) {
      // The models are still equal before the first update.
      EXPECT_EQ(skipped.losses[rank].at(1), whole.losses[rank].at(1));
      EXPECT_NE(skipped.losses[rank].at(3), whole.losses[rank].at(3));
    }
  }
}

TEST(SkipCommunicationTest, StagesSendOneNumberInTheirOrder) {
  struct Case {
    std::string trainer;
    int ranks;
    Flags flags;
  };
  for (const Case& each :
       {Case{"pipeline", 2, {"--microbatches=3"}},
        Case{"pipeline", 4, {"--microbatches=3", "--dp=2", "--model=gpt"}},
        Case{"model_parallel", 2, {"--accumulate=3"}}}) {
    SCOPED_TRACE(each.trainer + " x" + std::to_string(each.ranks));
    const Outcome skipped = TrainRecorded(
        each.trainer, each.ranks,
        Joined(each.flags, {"--skip_communication", "--traffic_steps=1"}));
    for (const ScheduleRecord& step : skipped.schedules) {
      EXPECT_EQ(step.sent_bytes, 3 * 4);
      EXPECT_EQ(step.received_bytes, 3 * 4);
      EXPECT_GT(step.busy_seconds, 0);
    }
    EXPECT_FALSE(skipped.schedules.empty());
    for (const RecordedTransfer& transfer : skipped.transfers)
      EXPECT_EQ(transfer.bytes, 4) << transfer.op;
    EXPECT_TRUE(skipped.evaluations.empty());
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
        Case{"ddp", "--checkpoint_dir=" + dir, "not hold a trained model"},
        Case{"ddp", "--check_divergence_every=1", "parameters diverge"},
        Case{"ddp", "--comm_hook=fp16", "excludes --skip_communication"},
        Case{"ddp", "--find_unused_parameters",
             "ranks exchange the set of used parameters"},
        Case{"pipeline", "--checkpoint_dir=" + dir,
             "not hold a trained model"}}) {
    const Finished run =
        RunTrainer(each.trainer, With({"--skip_communication", each.flag}));
    EXPECT_EQ(run.code, 2) << each.flag;
    EXPECT_NE(run.err.find(each.complaint), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace rankwise

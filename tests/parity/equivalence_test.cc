// Tests that data parallelism learns the same: equal global batches must yield
// equal losses and weights, on one rank or several, with either engine for
// gradients.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

struct Result {
  Losses losses;  // mean over all ranks
  Weights weights;
};

// Trains 12 steps on global batches of 32 and reads the results.
Result TrainOn(const std::string& trainer, int world_size, const Flags& flags) {
  const Trained run =
      Train(trainer, world_size,
            Joined(flags, {"--max_steps=12", "--train_size=512", "--eval=false",
                           "--seed=5", "--log_every=6"}));
  return {MeanLosses(run.record, world_size), run.weights};
}

void ExpectSameLosses(const Losses& a, const Losses& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [step, loss] : a)
    EXPECT_NEAR(loss, b.at(step), tolerance) << "step " << step;
}

class EquivalenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EquivalenceTest, EveryWayToTakeTheSameGlobalBatchesGivesTheSameWeights) {
  const std::string optimizer = absl::StrCat("--optimizer=", GetParam());
  const bool adam = std::string(GetParam()) == "adam";
  const std::string rate = adam ? "--lr=0.001" : "--lr=0.01";
  // Adam divides by the gradient's magnitude, which magnifies rounding.
  const double tolerance = adam ? 1e-3 : 1e-5;
  const Result base =
      TrainOn("single", 1, {"--batch_size=32", optimizer, rate});
  ASSERT_EQ(base.losses.size(), 12u);

  const Result two = TrainOn("ddp", 2, {"--batch_size=16", optimizer, rate});
  ExpectSameLosses(base.losses, two.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, two.weights), tolerance);

  const Result simple =
      TrainOn("ddp", 2, {"--batch_size=16", "--ddp=simple", optimizer, rate});
  ExpectSameLosses(two.losses, simple.losses, 1e-6);
  EXPECT_LT(LargestDistance(two.weights, simple.weights), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EquivalenceTest,
                         ::testing::Values("sgd", "adam"));

TEST(AccumulationTest, MicroBatchesAddUpToTheLargeBatch) {
  const Result base =
      TrainOn("single", 1, {"--batch_size=32", "--optimizer=sgd", "--lr=0.01"});
  const Result micro = TrainOn(
      "single", 1,
      {"--batch_size=8", "--accumulate=4", "--optimizer=sgd", "--lr=0.01"});
  ExpectSameLosses(base.losses, micro.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, micro.weights), 1e-5);

  const Result both = TrainOn(
      "ddp", 2,
      {"--batch_size=8", "--accumulate=2", "--optimizer=sgd", "--lr=0.01"});
  ExpectSameLosses(base.losses, both.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, both.weights), 1e-5);
}

TEST(DeterminismTest, TheSameSeedGivesTheSameLossesToTheLastBit) {
  const Result first = TrainOn("ddp", 2, {"--batch_size=16"});
  const Result second =
      TrainOn("ddp", 2, {"--batch_size=16", "--data_workers=2"});
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(LargestDistance(first.weights, second.weights), 0);
}

TEST(SmallestExampleTest, OneDdpStepOfTheLinearModel) {
  const std::string record = TemporaryPath("linear.jsonl");
  OutputOf("ddp",
           {"--model=linear", "--nproc=2", "--max_steps=1", "--batch_size=4",
            "--train_size=16", "--test_size=7", "--record=" + record});
  EXPECT_EQ(LossesOf(record, 0).size(), 1u);
  EXPECT_EQ(LossesOf(record, 1).size(), 1u);
  int64_t evaluated = 0;
  for (const EvalRecord& evaluation : RecordsOf<EvalRecord>(record))
    evaluated += evaluation.total;
  EXPECT_EQ(evaluated, 7);
}

}  // namespace
}  // namespace rankwise

// Data parallelism must not change what is learned: the same global batches
// give the same losses and weights, on one rank or several, whichever engine
// exchanges the gradients.

#include <ATen/ops/linalg_vector_norm.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trainer_process.h"
#include "trainers/checkpoint/safetensors.h"

namespace rankwise {
namespace {

struct Trained {
  std::map<int64_t, double> losses;
  NamedTensors weights;
};

// Trains 12 steps on global batches of 32 and reads back what came of it.
Trained Train(const std::string& label, const std::string& trainer,
              int world_size, std::vector<std::string> flags) {
  const std::string dir = TemporaryPath(label);
  std::filesystem::create_directories(dir);
  const std::string record = dir + "/run.jsonl";
  for (const char* common :
       {"--max_steps=12", "--train_size=512", "--eval=false", "--seed=5",
        "--threads=1", "--log_every=6"}) {
    flags.push_back(common);
  }
  flags.push_back("--record=" + record);
  flags.push_back("--checkpoint_dir=" + dir);
  if (world_size > 1) flags.push_back(absl::StrCat("--nproc=", world_size));
  const Finished run = RunTrainer(trainer, flags);
  EXPECT_EQ(run.code, 0) << run.err;
  auto weights = LoadSafetensors(dir + "/model.safetensors");
  EXPECT_TRUE(weights.ok()) << weights.status();
  return {MeanLosses(record, world_size),
          weights.ok() ? weights->tensors : NamedTensors{}};
}

// The largest distance between two weights, relative to the weight's norm.
double LargestDistance(const NamedTensors& a, const NamedTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    const double distance =
        at::linalg_vector_norm(a[i].second - b[i].second).item<double>();
    largest = std::max(
        largest, distance / at::linalg_vector_norm(a[i].second).item<double>());
  }
  return largest;
}

void ExpectSameLosses(const std::map<int64_t, double>& a,
                      const std::map<int64_t, double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [step, loss] : a)
    EXPECT_NEAR(loss, b.at(step), tolerance) << "step " << step;
}

class EquivalenceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(EquivalenceTest, EveryWayToTakeTheSameGlobalBatchesGivesTheSameWeights) {
  const std::string optimizer = absl::StrCat("--optimizer=", GetParam());
  const bool adam = std::string(GetParam()) == "adam";
  const std::string rate = adam ? "--lr=0.001" : "--lr=0.01";
  // Adam divides by the gradient's own size, which magnifies rounding.
  const double tolerance = adam ? 1e-3 : 1e-5;
  const Trained base =
      Train("single", "single", 1, {"--batch_size=32", optimizer, rate});
  ASSERT_EQ(base.losses.size(), 12u);

  const Trained two =
      Train("ddp2", "ddp", 2, {"--batch_size=16", optimizer, rate});
  ExpectSameLosses(base.losses, two.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, two.weights), tolerance);

  const Trained simple =
      Train("simple2", "ddp", 2,
            {"--batch_size=16", "--ddp=simple", optimizer, rate});
  ExpectSameLosses(two.losses, simple.losses, 1e-6);
  EXPECT_LT(LargestDistance(two.weights, simple.weights), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EquivalenceTest,
                         ::testing::Values("sgd", "adam"));

TEST(AccumulationTest, MicroBatchesAddUpToTheLargeBatch) {
  const Trained base =
      Train("whole", "single", 1,
            {"--batch_size=32", "--optimizer=sgd", "--lr=0.01"});
  const Trained micro = Train(
      "micro", "single", 1,
      {"--batch_size=8", "--accumulate=4", "--optimizer=sgd", "--lr=0.01"});
  ExpectSameLosses(base.losses, micro.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, micro.weights), 1e-5);

  const Trained both = Train(
      "both", "ddp", 2,
      {"--batch_size=8", "--accumulate=2", "--optimizer=sgd", "--lr=0.01"});
  ExpectSameLosses(base.losses, both.losses, 1e-4);
  EXPECT_LT(LargestDistance(base.weights, both.weights), 1e-5);
}

TEST(DeterminismTest, TheSameSeedGivesTheSameLossesToTheLastBit) {
  const Trained first = Train("first", "ddp", 2, {"--batch_size=16"});
  const Trained second =
      Train("second", "ddp", 2, {"--batch_size=16", "--data_workers=2"});
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(LargestDistance(first.weights, second.weights), 0);
}

TEST(SmallestExampleTest, OneDdpStepOfTheLinearModel) {
  const std::string record = TemporaryPath("linear.jsonl");
  const Finished run = RunTrainer(
      "ddp", {"--model=linear", "--nproc=2", "--max_steps=1", "--batch_size=4",
              "--train_size=16", "--test_size=7", "--record=" + record});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(LossesOf(record, 0).size(), 1u);
  EXPECT_EQ(LossesOf(record, 1).size(), 1u);
  int64_t evaluated = 0;
  for (const Record& entry : RecordsIn(record)) {
    if (const auto* eval = std::get_if<EvalRecord>(&entry))
      evaluated += eval->total;
  }
  EXPECT_EQ(evaluated, 7);
}

}  // namespace
}  // namespace rankwise

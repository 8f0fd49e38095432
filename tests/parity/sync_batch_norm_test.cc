// Tests --sync_batch_norm: a model with batch norm must learn the same for any
// number of ranks that share a batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Losses LossesWith(const std::string& trainer, int ranks, const Flags& flags) {
  const Flags all =
      Joined(flags, {"--model=simple_cnn_bn", "--max_steps=12",
                     "--train_size=1024", "--eval=false", "--seed=5",
                     "--log_every=6", "--optimizer=sgd", "--lr=0.01"});
  return MeanLosses(Train(trainer, ranks, all).record, ranks);
}

double LargestDifference(const Losses& a, const Losses& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [step, loss] : a)
    largest = std::max(largest, std::abs(loss - b.at(step)));
  return largest;
}

TEST(SyncBatchNormTest, TwoRanksLearnWhatOneDoes) {
  const auto single = LossesWith("single", 1, {"--batch_size=64"});
  const double synced = LargestDifference(
      single, LossesWith("ddp", 2, {"--batch_size=32", "--sync_batch_norm"}));
  const double local =
      LargestDifference(single, LossesWith("ddp", 2, {"--batch_size=32"}));
  std::printf("largest difference of a loss: %g, without the flag %g\n", synced,
              local);
  EXPECT_LT(synced, 1e-5);
  EXPECT_GT(local, 100 * synced);
}

TEST(SyncBatchNormTest, SaysWhatItDoesAndRefusesAModelWithoutBatchNorm) {
  const Flags flags = {"--nproc=2",
                       "--max_steps=1",
                       "--batch_size=8",
                       "--train_size=64",
                       "--eval=false",
                       "--sync_batch_norm",
                       "--model=simple_cnn_bn"};
  EXPECT_THAT(OutputOf("ddp", flags),
              HasSubstr("2 layers normalising over the batches of 2 ranks"));
  EXPECT_THAT(OutputOf("ddp", Joined(flags, {"--skip_communication"})),
              HasSubstr("every rank normalises over its own batch"));
  const Finished refused =
      RunTrainer("ddp", Joined(flags, {"--model=simple_cnn"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(
      refused.err,
      StartsWith("ddp: error: --sync_batch_norm: --model=simple_cnn has "
                 "no batch norm"));
}

}  // namespace
}  // namespace rankwise

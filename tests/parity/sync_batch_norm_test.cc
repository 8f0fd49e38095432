// --sync_batch_norm: what a model with batch norm learns no longer depends on
// how many ranks share a batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::map<int64_t, double> Losses(const std::string& trainer, int ranks,
                                 std::vector<std::string> flags) {
  for (const char* common : {"--model=simple_cnn_bn", "--max_steps=12",
                             "--train_size=1024", "--eval=false", "--seed=5",
                             "--log_every=6", "--optimizer=sgd", "--lr=0.01"}) {
    flags.push_back(common);
  }
  return MeanLosses(Train(trainer, ranks, flags).record, ranks);
}

double LargestDifference(const std::map<int64_t, double>& a,
                         const std::map<int64_t, double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [step, loss] : a)
    largest = std::max(largest, std::abs(loss - b.at(step)));
  return largest;
}

TEST(SyncBatchNormTest, TwoRanksLearnWhatOneDoes) {
  const auto single = Losses("single", 1, {"--batch_size=64"});
  const double synced = LargestDifference(
      single, Losses("ddp", 2, {"--batch_size=32", "--sync_batch_norm"}));
  const double local =
      LargestDifference(single, Losses("ddp", 2, {"--batch_size=32"}));
  std::printf("largest difference of a loss: %g, without the flag %g\n", synced,
              local);
  EXPECT_LT(synced, 1e-5);
  EXPECT_GT(local, 100 * synced);
}

TEST(SyncBatchNormTest, SaysWhatItDoesAndRefusesAModelWithoutBatchNorm) {
  const std::vector<std::string> flags = {"--nproc=2",
                                          "--max_steps=1",
                                          "--batch_size=8",
                                          "--train_size=64",
                                          "--eval=false",
                                          "--sync_batch_norm",
                                          "--model=simple_cnn_bn"};
  const Finished synced = RunTrainer("ddp", flags);
  ASSERT_EQ(synced.code, 0) << synced.err;
  EXPECT_THAT(synced.out, HasSubstr("2 layers normalising over the batches of "
                                    "2 ranks"));
  std::vector<std::string> local = flags;
  local.push_back("--skip_communication");
  EXPECT_THAT(RunTrainer("ddp", local).out,
              HasSubstr("every rank normalises over its own batch"));
  std::vector<std::string> without = flags;
  without.back() = "--model=simple_cnn";
  const Finished refused = RunTrainer("ddp", without);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(
      refused.err,
      StartsWith("ddp: error: --sync_batch_norm: --model=simple_cnn has "
                 "no batch norm"));
}

}  // namespace
}  // namespace rankwise

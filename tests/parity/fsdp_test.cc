// Tests sharded data parallelism: the traffic of a step, byte by byte; training
// that fits into memory only if sharded; and rejected configurations.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "parallel/comm/test_process.h"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using testing::HasSubstr;
using testing::Pair;

// --model=gpt --tied_head=false, in fp32
constexpr int64_t kTokens = 32, kFeatures = 64, kBlocks = 2, kVocabulary = 256;
constexpr int64_t kHeadBytes = 4 * kVocabulary * kFeatures;
constexpr int64_t kBytes =
    4 * (kBlocks * (12 * kFeatures * kFeatures + 13 * kFeatures) +
         (kVocabulary + kTokens) * kFeatures + 2 * kFeatures) +
    kHeadBytes;

Flags SmallGpt() {
  return {"--model=gpt",          "--tied_head=false", "--depth=2",
          "--width=64",           "--batch_size=2",    "--train_size=64",
          "--sequence_length=32", "--max_steps=3",     "--epochs=1",
          "--test_size=9"};
}

Trained TrainSmallGpt(int ranks, const Flags& flags) {
  return Train(
      "fsdp", ranks,
      Joined(Joined(flags, SmallGpt()), {"--traffic_steps=1", "--eval=false"}));
}

// Returns the bytes that each of `ranks` ranks passes to calls in the last
// step, by operation; equal on all ranks.
std::map<std::string, int64_t> TrafficOf(int ranks, const Flags& flags) {
  const Trained run = TrainSmallGpt(ranks, flags);
  std::vector<std::map<std::string, int64_t>> traffic;
  for (const auto& recorded : RecordsOf<TrafficRecord>(run.record)) {
    traffic.emplace_back();
    for (const RecordedTransfer& transfer : recorded.events)
      traffic.back()[transfer.op] += transfer.bytes;
  }
  EXPECT_EQ(traffic.size(), static_cast<size_t>(ranks));
  for (const auto& rank : traffic) EXPECT_EQ(rank, traffic[0]);
  return traffic.empty() ? std::map<std::string, int64_t>() : traffic[0];
}

// Batch norm's running statistics are part of the weights, and used by the
// evaluation.
TEST(FsdpTest, RecomputedForwardsMoveNoRunningStatistics) {
  Flags flags = {"--model=simple_cnn_bn", "--batch_size=8", "--train_size=32",
                 "--test_size=16",        "--epochs=1",     "--zero=3"};
  const Trained base = Train("fsdp", 1, flags);
  ASSERT_TRUE(base.weights.count("conv2.norm.running_mean"));
  flags.push_back("--recompute");
  ExpectBitEqual(base, Train("fsdp", 1, flags));
}

// Rajbhandari et al. 2020, "ZeRO", section 7: with n ranks an all-gather and a
// reduce-scatter each move (n - 1) / n of the parameters' bytes. A rank passes
// its part to an all-gather, and everything to a reduce-scatter. All sizes here
// divide by n: nothing is padded.
TEST(FsdpTest, TrafficIsTheFormulasToTheByte) {
  for (int ranks : {2, 4}) {
    for (const char* zero : {"--zero=1", "--zero=2"}) {
      const auto traffic = TrafficOf(ranks, {zero});
      EXPECT_EQ(traffic.at("all_gather"), kBytes / ranks) << zero;
      EXPECT_EQ(traffic.at("reduce_scatter"), kBytes) << zero;
    }
    // Once in forward and once in backward, except for the last unit, which is
    // still gathered when backward begins.
    const auto traffic = TrafficOf(ranks, {"--zero=3"});
    EXPECT_EQ(traffic.at("all_gather"), (2 * kBytes - kHeadBytes) / ranks);
    EXPECT_EQ(traffic.at("reduce_scatter"), kBytes);
  }
}

// Zhao et al. 2023, "PyTorch FSDP", section 3.2.2: two groups of two, within
// which parameters are gathered and gradients reduced; then the ranks with the
// same rows, one of each group, sum theirs.
TEST(FsdpTest, HybridShardingsTrafficStaysInItsGroupsToTheByte) {
  const Trained run = TrainSmallGpt(4, {"--zero=3", "--shard_ranks=2"});
  const auto ranks = RecordsOf<TrafficRecord>(run.record);
  EXPECT_EQ(ranks.size(), 4u);
  for (const TrafficRecord& recorded : ranks) {
    std::map<std::string, int64_t> bytes;  // by group and operation
    std::map<std::string, std::vector<int64_t>> members;
    for (const RecordedTransfer& transfer : recorded.events) {
      bytes[transfer.group + " " + transfer.op] += transfer.bytes;
      members[transfer.group] = transfer.ranks;
    }
    EXPECT_THAT(bytes,
                testing::ElementsAre(
                    Pair("dp_replicate all_reduce", kBytes / 2),
                    Pair("dp_shard all_gather", (2 * kBytes - kHeadBytes) / 2),
                    Pair("dp_shard reduce_scatter", kBytes)));
    const int64_t first = recorded.rank / 2 * 2, same = recorded.rank % 2;
    EXPECT_THAT(members["dp_shard"], testing::ElementsAre(first, first + 1));
    EXPECT_THAT(members["dp_replicate"], testing::ElementsAre(same, same + 2));
  }
}

// Runs `trainer` with at most `megabytes` of writable memory per process.
Finished RunWithin(int megabytes, const std::string& trainer,
                   const Flags& flags) {
  TestProcess process(
      Joined({"/bin/sh", "-c", "ulimit -d $0 && exec \"$@\"",
              absl::StrCat(megabytes * 1000), Runfile("trainers/" + trainer)},
             flags));
  return Finish(process);
}

// Weights of 69 MB: with as much again for gradients, and twice as much for
// Adam's state, a rank of ddp writes to 280 MB of memory, in addition to the
// 100 MB of any process of these programs. ZeRO 3 divides it by four.
TEST(FsdpTest, TrainsInMemoryThatIsTooSmallForEveryRankToHaveAll) {
  constexpr int kMegabytes = 345;
  const Flags flags = {"--nproc=4",       "--model=mlp",   "--width=800",
                       "--depth=24",      "--max_steps=2", "--batch_size=2",
                       "--train_size=16", "--eval=false",  "--threads=1"};
  const Finished whole = RunWithin(kMegabytes, "ddp", flags);
  EXPECT_EQ(whole.code, 1);
  EXPECT_THAT(whole.err,
              testing::ContainsRegex(
                  "ddp: rank [0-3]: error: [a-z0-9 ]+ ran out of memory on "
                  "cpu: .*you tried to allocate [0-9]+ bytes"));
  EXPECT_THAT(whole.err, HasSubstr("the trainer fsdp (--zero=3)"));
  const Finished divided = RunWithin(kMegabytes, "fsdp", flags);
  EXPECT_EQ(divided.code, 0) << divided.err;
}

TEST(FsdpTest, RecordsWhatEachUnitWaitedFor) {
  const Trained run = Train("fsdp", 2, Joined(SmallGpt(), {"--eval=false"}));
  const auto steps = RecordsOf<StepRecord>(run.record);
  EXPECT_EQ(steps.size(), 6u);  // three per rank
  for (const StepRecord& step : steps) {
    double waited = 0;
    std::vector<std::string> names;
    for (const UnitWait& unit : step.units) {
      names.push_back(unit.unit);
      waited += unit.all_gather_seconds + unit.reduce_scatter_seconds;
      // Only the first unit of a step cannot be prefetched.
      EXPECT_EQ(unit.prefetch_misses, unit.unit == "embedding" ? 1 : 0);
    }
    EXPECT_THAT(names, testing::ElementsAre("embedding", "block0", "block1",
                                            "norm", "head"));
    EXPECT_NEAR(waited, step.exposed_comm_seconds, 1e-9);
    EXPECT_LE(waited, step.forward_seconds + step.backward_seconds);
  }
}

std::string Refusal(const std::string& trainer, const Flags& flags) {
  const Finished run = RunTrainer(trainer, flags);
  EXPECT_EQ(run.code, 2) << run.err;
  return run.err;
}

TEST(FsdpTest, RefusesWhatItCannotDo) {
  const std::vector<std::pair<Flags, std::string>> bad = {
      {{"--zero=0"}, "--zero=0: fsdp does not take it"},
      {{"--zero=4"}, "--zero=4: must be between 0 and 3"},
      {{"--units=blocks"}, "--units=blocks: must be block, layer, or a number"},
      {{"--units=-1"}, "--units=-1: must be block, layer, or a number of MiB"},
      {{"--prefetch=-1"}, "--prefetch=-1: must be between 0 and 1024"},
      {{"--param_dtype=bf16"}, "--param_dtype=bf16: needs --precision=bf16"},
      {{"--reduce_every_microbatch"}, "needs --accumulate above 1"},
      {{"--reduce_every_microbatch", "--zero=1"}, "needs --zero=2 or 3"},
      {{"--offload_optimizer", "--device=cpu"},
       "--offload_optimizer: excludes --device=cpu: it needs a GPU"},
      {{"--skip_communication"}, "--skip_communication: fsdp does not take it"},
      {{"--check_divergence_every=1"}, "fsdp does not take it"},
      {{"--precision=fp16"}, "--precision=fp16: fsdp"},
      {{"--cuda_graph"}, "--cuda_graph: fsdp"}};
  for (const auto& [flags, message] : bad)
    EXPECT_THAT(Refusal("fsdp", flags), HasSubstr(message));
  EXPECT_THAT(
      Refusal("hybrid", {"--nproc=2", "--pp=2", "--model=gpt", "--zero=3",
                         "--schedule=zero_bubble_h1"}),
      HasSubstr("--zero=3: --schedule=zero_bubble_h1 divides backward"));
  EXPECT_THAT(
      Refusal("hybrid", {"--nproc=2", "--pp=2", "--model=gpt", "--zero=3",
                         "--schedule=interleaved_1f1b", "--units=4"}),
      HasSubstr("--units=4: with --zero=3 and several stages per rank"));
  EXPECT_THAT(
      Refusal("fsdp", {"--nproc=2", "--shard_ranks=3", "--model=mlp"}),
      HasSubstr("--shard_ranks=3: does not divide the 2 ranks; give 1 or 2"));
}

}  // namespace
}  // namespace rankwise

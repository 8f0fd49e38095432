// Tests invalid divisions of a model among ranks: each run must end before any
// rank is started, with exit code 2 and one line that names the flag, the error
// and the valid values.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct BadInput {
  std::string name;
  std::vector<std::string> flags;
  std::string message;  // must be in stderr
  std::string trainer = "hybrid";
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

const char kTwo[] = "--nproc=2";
const char kFour[] = "--nproc=4";
const char kGpt[] = "--model=gpt";

std::vector<BadInput> BadMeshes() {
  return {
      {"RanksThatAreNoMultiple",
       {"--nproc=3", "--tp=2", kGpt},
       "--pp=1 --cp=1 --tp=2: 2 ranks hold one copy of the model, and "
       "--nproc=3 is not a multiple of it; give --nproc=2, or sizes whose "
       "product is 1 or 3"},
      {"OneRank",
       {"--tp=2", kGpt},
       "2 ranks hold one copy of the model, and --nproc=1 is not a multiple"},
      {"ReplicasThatDoNotFit",
       {kFour, "--tp=2", "--pp=2", "--dp=2", kGpt},
       "--pp=2 --dp=2 --cp=1 --tp=2 are 8 ranks, but the job has 4"},
      {"TooFewReplicas",
       {kFour, "--tp=2", "--dp=1", kGpt},
       "--pp=1 --dp=1 --cp=1 --tp=2 are 2 ranks, but the job has 4"},
      {"StagesNegative",
       {kTwo, "--pp=-1"},
       "--pp=-1: must be between 0 and 1048576"},
      {"TensorZero", {kTwo, "--tp=0"}, "--tp=0: must be between 1 and 1048576"},
      {"ContextNegative",
       {kTwo, "--cp=-2"},
       "--cp=-2: must be between 1 and 1048576"},
      {"ReplicasNegative",
       {kTwo, "--dp=-1"},
       "--dp=-1: must be between 0 and 1048576"},
      {"OrderLacksAnAxis",
       {kTwo, "--tp=2", kGpt, "--mesh_order=pp,dp,cp"},
       "--mesh_order=pp,dp,cp: must name pp, dp, cp and tp once each, as in "
       "pp,dp,cp,tp"},
      {"OrderNamesAnAxisTwice",
       {kTwo, "--tp=2", kGpt, "--mesh_order=pp,dp,cp,tp,tp"},
       "--mesh_order=pp,dp,cp,tp,tp: must name"},
      {"OrderNamesAnotherAxis",
       {kTwo, "--tp=2", kGpt, "--mesh_order=pp,dp,cp,ep"},
       "--mesh_order=pp,dp,cp,ep: must name"},
      {"MoreStagesThanLayers",
       {"--nproc=8", "--pp=8", "--tp=1", kGpt, "--depth=2"},
       "--split=flops: 8 stages of a model with 5 layers"},
      {"ScheduleWithMoreStagesThanLayers",
       {"--nproc=8", "--pp=4", "--tp=2", kGpt, "--depth=1", "--schedule=zbv"},
       "--split=flops: 8 stages of a model with 4 layers"},
      {"ChunksOfAnotherSchedule",
       {kFour, "--pp=2", "--tp=2", kGpt, "--schedule=1f1b", "--chunks=2"},
       "--chunks=2: --schedule=1f1b has 1 stage per rank; leave out --chunks"},
      {"Schedule",
       {kFour, "--pp=2", "--tp=2", kGpt, "--schedule=dualpipe"},
       "--schedule=dualpipe: neither a schedule"},
  };
}

std::vector<BadInput> BadDivisions() {
  return {
      {"UnevenHeads",
       {"--nproc=3", "--tp=3", kGpt},
       "tp=3: 4 attention heads do not divide among 3 ranks; 1, 2 or 4 do"},
      {"UnevenHeadsOfVit",
       {kTwo, "--tp=2", "--model=vit", "--model_size=tiny"},
       "tp=2: 3 attention heads do not divide among 2 ranks; 1 or 3 do"},
      {"UnevenFeatures",
       {kTwo, "--tp=2", "--model=mlp", "--width=63"},
       "tp=2: 63 features of --width do not divide among 2 ranks; "},
      {"UnevenTokens",
       {kTwo, "--cp=2", kGpt, "--sequence_length=33"},
       "--cp=2 --context=ring: 33 tokens do not divide into 4 equal pieces"},
      {"FewerHeadsThanUlyssesNeeds",
       {kFour, "--cp=4", kGpt, "--width=64", "--context=ulysses"},
       "--cp=4 --context=ulysses: 2 attention heads do not divide among 4 "
       "ranks; 1 or 2 do"},
      {"FewerHeadsThanUlyssesNeedsAfterTp",
       {kFour, "--cp=2", "--tp=2", kGpt, "--width=64", "--context=ulysses"},
       "--cp=2 --context=ulysses: 1 attention head does not divide among 2"},
      {"Context",
       {kTwo, "--cp=2", kGpt, "--context=star"},
       "--context=star: must be one of ring, ulysses"},
      {"RingWithDropout",
       {kTwo, "--cp=2", kGpt, "--dropout=0.1"},
       "--dropout=0.1: ring attention cannot drop attention weights; give "
       "--context=ulysses or --dropout=0"},
      {"SequenceParallelAlone",
       {kTwo, kGpt, "--sequence_parallel"},
       "--sequence_parallel: divides the tokens among the ranks along tp, "
       "which "
       "must be at least 2"},
      {"ModelWithoutTensorParallelism",
       {kTwo, "--tp=2", "--model=simple_cnn"},
       "tp=2: --model=simple_cnn does not take it; only --model=mp_mlp, mlp, "
       "gpt, llama, vit do"},
      {"LinearWithoutTensorParallelism",
       {kTwo, "--tp=2", "--model=linear"},
       "tp=2: --model=linear does not take it"},
      {"ModelWithoutTokens",
       {kTwo, "--cp=2", "--model=mlp"},
       "--cp=2: --model=mlp does not take it; only --model=gpt, llama, vit do"},
      {"SequenceParallelWithoutTokens",
       {kTwo, "--tp=2", "--model=mlp", "--sequence_parallel"},
       "--sequence_parallel=true: --model=mlp does not take it; only "
       "--model=gpt, llama, vit do"},
      {"UnevenKeyAndValueHeads",
       {"--nproc=3", "--tp=3", "--model=llama", "--heads=6", "--kv_heads=2",
        "--width=192", "--ffn_width=384"},
       "tp=3: 2 key and value heads of 32 features neither divide among 3 "
       "ranks nor have a whole number of ranks each; give another tp or "
       "--kv_heads"},
      {"UlyssesWithFewKeyAndValueHeads",
       {kTwo, "--cp=2", "--context=ulysses", "--model=llama", "--kv_heads=1"},
       "--cp=2 --context=ulysses: 1 key and value head"},
      {"NoPieces",
       {kTwo, "--tp=2", kGpt, "--tp_overlap=0"},
       "--tp_overlap=0: must be between 1 and 1024"},
  };
}

std::vector<BadInput> BadCombinations() {
  return {
      {"Devices",
       {kGpt, "--devices=cpu,cpu"},
       "--devices=cpu,cpu: hybrid does not take it: the trainer pipeline "
       "runs a pipeline in one process"},
      {"Fp16",
       {kTwo, "--tp=2", kGpt, "--precision=fp16"},
       "--precision=fp16: hybrid does not take it"},
      {"CudaGraph",
       {kTwo, "--tp=2", kGpt, "--cuda_graph"},
       "--cuda_graph: hybrid does not take it"},
      {"SkippedCommunication",
       {kTwo, "--tp=2", kGpt, "--skip_communication"},
       "--skip_communication: hybrid does not take it, only ddp, pipeline, "
       "model_parallel do: other trainers' ranks cannot go on without"},
      {"Divergence",
       {kTwo, "--tp=2", kGpt, "--check_divergence_every=3"},
       "--check_divergence_every=3: hybrid does not take it"},
      {"Accumulate",
       {kTwo, "--tp=2", kGpt, "--accumulate=4"},
       "--accumulate=4: hybrid does not take it: it accumulates over its "
       "--microbatches"},
      {"SimulatedRanks",
       {kGpt, "--backend=fake", "--eval=false"},
       "--backend=fake: hybrid does not take it: simulated"},
      {"UnevenHeadsOfAllRanks",
       {"--nproc=3", kGpt},
       "tp=3: 4 attention heads do not divide among 3 ranks; 1, 2 or 4 do",
       "tensor_parallel"},
      {"DefaultModel",
       {kTwo},
       "tp=2: --model=simple_cnn does not take it",
       "tensor_parallel"},
      {"SequenceParallelOfOneRank",
       {kGpt, "--sequence_parallel"},
       "--sequence_parallel: divides the tokens among the ranks along tp",
       "tensor_parallel"},
      {"Fp16OfTensorParallel",
       {kTwo, kGpt, "--precision=fp16"},
       "--precision=fp16: tensor_parallel does not take it",
       "tensor_parallel"},
  };
}

void ExpectRefused(const Finished& run, const std::string& who,
                   const std::string& message) {
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "") << "no rank has been started";
  EXPECT_THAT(run.err, AllOf(StartsWith(who + ": error: "), HasSubstr(message),
                             Not(HasSubstr("frame #"))));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
}

class BadLayoutTest : public ::testing::TestWithParam<BadInput> {};

TEST_P(BadLayoutTest, IsRefusedInOneLine) {
  const BadInput& input = GetParam();
  ExpectRefused(RunTrainer(input.trainer, input.flags), input.trainer,
                input.message);
}

std::string NameOf(const ::testing::TestParamInfo<BadInput>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Meshes, BadLayoutTest,
                         ::testing::ValuesIn(BadMeshes()), NameOf);
INSTANTIATE_TEST_SUITE_P(Divisions, BadLayoutTest,
                         ::testing::ValuesIn(BadDivisions()), NameOf);
INSTANTIATE_TEST_SUITE_P(Combinations, BadLayoutTest,
                         ::testing::ValuesIn(BadCombinations()), NameOf);

// If another launcher has started the ranks, each of them must fail.
class BadLauncherTest : public ::testing::Test {
 protected:
  static Finished RunRankZeroOfThree(const std::string& trainer,
                                     const std::vector<std::string>& flags) {
    return RunTrainer(
        trainer, flags,
        {"RANK=0", "WORLD_SIZE=3", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=3",
         "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"});
  }
};

TEST_F(BadLauncherTest, AProductThatIsNotItsRanks) {
  ExpectRefused(RunRankZeroOfThree("hybrid", {"--tp=2", kGpt}), "hybrid",
                "--pp=1 --dp=1 --cp=1 --tp=2 are 2 ranks, but the job has 3");
}

TEST_F(BadLauncherTest, UnevenHeads) {
  const char kMessage[] =
      "tp=3: 4 attention heads do not divide among 3 ranks; 1, 2 or 4 do";
  ExpectRefused(RunRankZeroOfThree("hybrid", {"--tp=3", kGpt}), "hybrid",
                kMessage);
  ExpectRefused(RunRankZeroOfThree("tensor_parallel", {kGpt}),
                "tensor_parallel", kMessage);
}

TEST_F(BadLauncherTest, ItsRanksAreNotThoseOfNproc) {
  ExpectRefused(RunRankZeroOfThree("pipeline", {"--nproc=4", "--pp=2"}),
                "pipeline", "--pp=2 --dp=1 are 2 ranks, but the job has 3");
}

TEST_F(BadLauncherTest, AScheduleThatDividesBackward) {
  ExpectRefused(
      RunRankZeroOfThree(
          "hybrid", {"--pp=3", kGpt, "--zero=3", "--schedule=zero_bubble_h1"}),
      "hybrid", "--zero=3: --schedule=zero_bubble_h1 divides backward in two");
}

TEST_F(BadLauncherTest, NoPieces) {
  ExpectRefused(RunRankZeroOfThree("tensor_parallel", {kGpt, "--tp_overlap=0"}),
                "tensor_parallel",
                "--tp_overlap=0: must be between 1 and 1024");
}

}  // namespace
}  // namespace rankwise

// Tests that dividing a model among ranks does not change its training: with
// equal seed and global batch, every layout must have the losses, weights and
// evaluations of one process, up to rounding. //tests/parity compares more
// layouts over more steps.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/parity/parity_cases.h"
#include "tests/trainer/trained.h"

namespace rankwise {
namespace {

class ParityTest : public ::testing::TestWithParam<ParityCase> {};

TEST_P(ParityTest, LearnsTheSame) {
  const auto& [task, layout, base_layout, bounds] = GetParam();
  const RunLength length;
  const Trained& base = RunOf(task, base_layout, length);
  const Trained& run = RunOf(task, layout, length);
  ASSERT_EQ(base.losses.size(), static_cast<size_t>(base_layout.ranks));
  ASSERT_EQ(run.losses.size(), static_cast<size_t>(layout.ranks));
  ASSERT_EQ(base.losses[0].size(), static_cast<size_t>(length.steps));
  ASSERT_EQ(base.evaluations.size(), 2u);
  const Distances distances = Compare(task, base, run);
  EXPECT_LE(distances.weights, bounds.weights) << distances.weight;
  EXPECT_LE(distances.losses, bounds.losses);
  for (const auto& [name, weight] : base.weights)
    EXPECT_EQ(run.weights.at(name).sizes(), weight.sizes()) << name;
}

std::vector<ParityCase> Joined(
    const std::vector<std::vector<ParityCase>>& lists) {
  std::vector<ParityCase> all;
  for (const auto& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::string NameOfTest(const ::testing::TestParamInfo<ParityCase>& info) {
  return NameOf(info.param);
}

INSTANTIATE_TEST_SUITE_P(
    Gpt, ParityTest,
    ::testing::ValuesIn(Joined(
        {Against("Single", "Gpt", "Sgd",
                 {"Tp2", "Sp2", "Tp4", "Ring2", "Ulysses2", "Tp2Dp2",
                  "Pp2Tp21f1b", "Pp2Ring2", "Pp2Dp2Tp2", "Pp2Tp2Naive",
                  "Pp2Tp2Gpipe", "Pp2Tp2Interleaved", "Pp2Tp2ZeroBubbleH1",
                  "Pp2Tp2Zbv"}),
         Against("Single", "UntiedGpt", "Adam",
                 {"Sp2", "Ring2", "Pp2Sp2Recompute", "Zero2", "Zero3"}),
         Against("Single", "Gpt", "Bf16", {"Sp2", "Ring2", "Pp2Tp21f1b"}),
         Against("Single", "Llama", "Sgd",
                 {"Sp2", "Tp4", "Ring2", "Ulysses2", "Pp2Sp2Recompute",
                  "Pp2Zero3"}),
         Against("Single", "Qwen", "Sgd", {"Sp2", "Ring2", "Pp2Tp21f1b"}),
         Against("Single", "Llama", "Bf16", {"Sp2"}),
         Against("Single", "OddGpt", "ManyLogitsSgd", {"Sp2"})})),
    NameOfTest);

INSTANTIATE_TEST_SUITE_P(
    ShardedGpt, ParityTest,
    ::testing::ValuesIn(Joined(
        {Against("Ddp2", "Gpt", "Sgd", {"Zero1", "Zero3EachMicrobatch"},
                 kShardedBounds),
         // Sums of two numbers do not depend on the order.
         Against("Zero1", "Gpt", "Sgd", {"Zero2", "Zero3"}, kBitEqual),
         Against("Ddp4", "Gpt", "Sgd", {"Hsdp"}, kShardedBounds),
         Against("Tp2Dp2", "Gpt", "Sgd", {"Tp2Zero3"}, kShardedBounds),
         Against("Pp2Dp2", "Gpt", "Sgd",
                 {"Pp2Zero1", "Pp2Zero3", "Pp2Zero3InterleavedRecompute"},
                 kShardedBounds)})),
    NameOfTest);

INSTANTIATE_TEST_SUITE_P(
    Images, ParityTest,
    ::testing::ValuesIn(Joined(
        {Against("Single", "Vit", "Sgd",
                 {"Sp2", "Ring2", "Sp2Ulysses2", "Pp2Tp21f1b", "Pp2Ring2"}),
         Against("Single", "Mlp", "Sgd", {"Tp4", "Tp2Dp2"}),
         Against("Single", "OddMlp", "Sgd", {"Tp2", "Pp2Tp21f1b"})})),
    NameOfTest);

}  // namespace
}  // namespace rankwise

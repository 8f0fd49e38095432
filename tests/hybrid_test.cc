// Dividing a model among ranks must not change what it learns: at one seed and
// one global batch, every layout has the losses, the weights and the
// evaluations of one process, but for rounding.

#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/trained.h"
#include "tests/trainer_process.h"

namespace rankwise {
namespace {

using Flags = std::vector<std::string>;

// Bounds, both relative, on what separates a run from one process. Sums over
// ranks round in another order, which Adam magnifies where a gradient is nearly
// zero (that of attention's key bias is zero but for rounding), and in bf16
// every rank's part of a sum is rounded.
struct Bounds {
  double weights = 0;  // of each, to its norm
  double losses = 0;   // of each step, and of the evaluations
};
constexpr Bounds kSgdBounds = {.weights = 1e-5, .losses = 1e-5};
// A norm's bias sums what 50257 logits pull it to, which nearly cancels.
constexpr Bounds kManyLogitsBounds = {.weights = 1e-4, .losses = 1e-5};
constexpr Bounds kAdamBounds = {.weights = 1e-2, .losses = 1e-5};
constexpr Bounds kBf16Bounds = {.weights = 2e-2, .losses = 5e-4};

// What is trained, and how.
struct Task {
  std::string name;
  Flags flags = {};
  Bounds bounds = kSgdBounds;
};

struct Layout {
  std::string name = {};
  int ranks = 1;
  Flags flags = {};
  std::string trainer = "hybrid";
  int replicas = 1;
};

struct Case {
  Task task;
  Layout layout;
};

void PrintTo(const Case& tested, std::ostream* out) {
  *out << tested.task.name << tested.layout.name;
}

Flags Joined(Flags all, const Flags& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

// An epoch's third step has 8 + 2 of the global batch's 8 + 8 examples.
Trained TrainTask(const Task& task, const Layout& layout) {
  const bool has_stages = layout.trainer == "hybrid";
  return Train(
      layout.trainer, layout.ranks,
      Joined(Joined(task.flags, layout.flags),
             {has_stages ? "--microbatches=2" : "--accumulate=2",
              absl::StrCat("--batch_size=", 8 / layout.replicas),
              "--train_size=42", "--test_size=9", "--epochs=2", "--seed=3"}));
}

// The same in one process, once for all tests of a task.
const Trained& Base(const Task& task) {
  static auto* const kBases = new std::map<std::string, Trained>;
  const auto found = kBases->find(task.name);
  if (found != kBases->end()) return found->second;
  return kBases->emplace(task.name, TrainTask(task, {.trainer = "single"}))
      .first->second;
}

// A rank along cp has the loss of its own tokens, one along dp of its own
// examples: their mean is the whole batch's.
void ExpectLosses(const Trained& base, const Trained& run, double bound) {
  const auto means =
      MeanLosses(run.record, static_cast<int64_t>(run.losses.size()));
  ASSERT_EQ(base.losses.at(0).size(), 6u);
  ASSERT_EQ(means.size(), 6u);
  for (const auto& [step, loss] : base.losses[0])
    EXPECT_NEAR(means.at(step), loss, bound * loss) << "step " << step;
}

void ExpectEvaluations(const Trained& base, const Trained& run, double bound) {
  ASSERT_EQ(base.evaluations.size(), 2u);
  ASSERT_EQ(run.evaluations.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const double loss = base.evaluations[i].mean_loss;
    EXPECT_NEAR(run.evaluations[i].mean_loss, loss, bound * loss);
    EXPECT_EQ(run.evaluations[i].total, base.evaluations[i].total);
  }
}

class ParityTest : public ::testing::TestWithParam<Case> {};

TEST_P(ParityTest, LearnsWhatOneProcessLearns) {
  const auto& [task, layout] = GetParam();
  const Trained& base = Base(task);
  const Trained run = TrainTask(task, layout);
  ASSERT_EQ(run.losses.size(), static_cast<size_t>(layout.ranks));
  ExpectLosses(base, run, task.bounds.losses);
  ExpectEvaluations(base, run, task.bounds.losses);
  const double distance = LargestDistance(base.weights, run.weights);
  EXPECT_LE(distance, task.bounds.weights);
  for (const auto& [name, weight] : base.weights)
    EXPECT_EQ(run.weights.at(name).sizes(), weight.sizes()) << name;
}

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.task.name, info.param.layout.name);
}

std::vector<Case> Of(const Task& task, const std::vector<Layout>& layouts) {
  std::vector<Case> cases;
  for (const Layout& layout : layouts) cases.push_back({task, layout});
  return cases;
}

const Layout kTp2 = {"Tp2", 2, {"--tp_overlap=3"}, "tensor_parallel"};
const Layout kSp2 = {
    "Sp2", 2, {"--sequence_parallel", "--tp_overlap=2"}, "tensor_parallel"};
const Layout kTp4 = {"Tp4", 4, {"--tp=4"}};
const Layout kRing2 = {"Ring2", 2, {"--cp=2"}};
const Layout kUlysses2 = {"Ulysses2", 2, {"--cp=2", "--context=ulysses"}};
const Layout kSp2Ulysses2 = {
    "Sp2Ulysses2",
    4,
    {"--tp=2", "--sequence_parallel", "--cp=2", "--context=ulysses"}};
const Layout kTp2Dp2 = {"Tp2Dp2", 4, {"--tp=2"}, "hybrid", /*replicas=*/2};
const Layout kPp2Tp2 = {"Pp2Tp2", 4, {"--pp=2", "--tp=2"}};
const Layout kPp2Sp2Recompute = {
    "Pp2Sp2Recompute",
    4,
    {"--pp=2", "--tp=2", "--sequence_parallel", "--recompute"}};
const Layout kPp2Ring2 = {"Pp2Ring2", 4, {"--pp=2", "--cp=2"}};
const Layout kAllOfEight = {"Pp2Dp2Tp2",
                            8,
                            {"--pp=2", "--tp=2", "--mesh_order=tp,pp,cp,dp"},
                            "hybrid",
                            /*replicas=*/2};

Layout Fsdp(const std::string& name, int ranks, const Flags& flags) {
  return {name, ranks, flags, "fsdp", /*replicas=*/ranks};
}
const Layout kZero1 = Fsdp("Zero1", 2, {"--zero=1"});
const Layout kZero2 = Fsdp("Zero2", 2, {"--zero=2", "--units=layer"});
const Layout kZero3 = Fsdp("Zero3", 2, {"--zero=3", "--prefetch=2"});
const Layout kZero3Recompute =
    Fsdp("Zero3Recompute", 2, {"--recompute", "--reduce_every_microbatch"});
const Layout kTp2Zero3 = {
    "Tp2Zero3", 4, {"--tp=2", "--zero=3"}, "hybrid", /*replicas=*/2};
const Layout kPp2Zero1 = {
    "Pp2Zero1", 4, {"--pp=2", "--zero=1"}, "hybrid", /*replicas=*/2};
const Layout kPp2Zero3 = {
    "Pp2Zero3", 4, {"--pp=2", "--zero=3"}, "hybrid", /*replicas=*/2};

Layout Scheduled(const std::string& name, const std::string& schedule) {
  return {name, 4, {"--pp=2", "--tp=2", "--schedule=" + schedule}};
}

const Flags kGpt = {"--model=gpt", "--depth=2", "--width=128",
                    "--sequence_length=32"};
const Flags kSgd = {"--optimizer=sgd", "--lr=0.05"};
const Flags kClippedSgd = Joined(kSgd, {"--clip_grad_norm=0.3"});

INSTANTIATE_TEST_SUITE_P(
    Gpt, ParityTest,
    ::testing::ValuesIn(Of(
        {"Gpt", Joined(kGpt, kClippedSgd)},
        {kTp2, kSp2, kTp4, kRing2, kUlysses2, kTp2Dp2, kPp2Tp2, kPp2Ring2,
         kAllOfEight, Scheduled("Naive", "naive"), Scheduled("Gpipe", "gpipe"),
         Scheduled("Interleaved", "interleaved_1f1b"),
         Scheduled("ZeroBubble", "zero_bubble_h1"), Scheduled("Zbv", "zbv")})),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    ShardedGpt, ParityTest,
    ::testing::ValuesIn(Of({"Gpt", Joined(kGpt, kClippedSgd)},
                           {kZero1, kZero3Recompute, kTp2Zero3, kPp2Zero1,
                            kPp2Zero3})),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    UntiedGpt, ParityTest,
    ::testing::ValuesIn(Of({"AdamGpt",
                            Joined(kGpt, {"--tied_head=false",
                                          "--optimizer=adam", "--lr=0.001"}),
                            kAdamBounds},
                           {kSp2, kRing2, kPp2Sp2Recompute, kZero2, kZero3})),
    NameOf);

INSTANTIATE_TEST_SUITE_P(Bf16Gpt, ParityTest,
                         ::testing::ValuesIn(Of({"Bf16Gpt",
                                                 Joined(Joined(kGpt, kSgd),
                                                        {"--precision=bf16"}),
                                                 kBf16Bounds},
                                                {kSp2, kRing2, kPp2Tp2})),
                         NameOf);

// 50257 entries and 31 tokens: the last rank's part is filled up.
INSTANTIATE_TEST_SUITE_P(
    OddGpt, ParityTest,
    ::testing::ValuesIn(Of({"OddGpt",
                            Joined({"--model=gpt", "--model_size=gpt2",
                                    "--depth=1", "--width=128",
                                    "--sequence_length=31"},
                                   kClippedSgd),
                            kManyLogitsBounds},
                           {kSp2})),
    NameOf);

// 65 tokens, of which the ranks cannot have equal numbers.
INSTANTIATE_TEST_SUITE_P(
    Vit, ParityTest,
    ::testing::ValuesIn(Of({"Vit",
                            Joined({"--model=vit", "--depth=2", "--width=128"},
                                   kClippedSgd)},
                           {kSp2, kRing2, kSp2Ulysses2, kPp2Tp2, kPp2Ring2})),
    NameOf);

// Two pairs of layers, or one and a last layer that is whole on every rank.
INSTANTIATE_TEST_SUITE_P(
    Mlp, ParityTest,
    ::testing::ValuesIn(Of({"Mlp",
                            Joined({"--model=mlp", "--depth=3", "--width=64"},
                                   kClippedSgd)},
                           {kTp4, kTp2Dp2})),
    NameOf);
INSTANTIATE_TEST_SUITE_P(
    OddMlp, ParityTest,
    ::testing::ValuesIn(Of({"OddMlp",
                            Joined({"--model=mlp", "--depth=2", "--width=64"},
                                   kClippedSgd)},
                           {kTp2, kPp2Tp2})),
    NameOf);

}  // namespace
}  // namespace rankwise

#include "tests/parity/parity_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

constexpr int kExamples = 16;  // per step

// Model -> flags.
const std::map<std::string, Flags>& Models() {
  static const auto* const kModels = [] {
    const Flags gpt = {"--model=gpt", "--depth=2", "--width=128",
                       "--sequence_length=32"};
    const Flags llama = {"--model=llama", "--depth=2", "--sequence_length=32"};
    return new std::map<std::string, Flags>{
        {"Gpt", gpt},
        {"UntiedGpt", Joined(gpt, {"--tied_head=false"})},
        // 50257 entries and 31 tokens: the last rank's part is padded.
        {"OddGpt",
         {"--model=gpt", "--model_size=gpt2", "--depth=1", "--width=128",
          "--sequence_length=31"}},
        // Two ranks along tp share the key and value heads, four have a half.
        {"Llama", llama},
        {"Qwen",
         Joined(llama, {"--qk_norm=true", "--kv_heads=1", "--tied_head=true"})},
        // 65 tokens do not divide evenly among the ranks.
        {"Vit", {"--model=vit", "--depth=2", "--width=128"}},
        // Two pairs of layers along tp,
        {"Mlp", {"--model=mlp", "--depth=3", "--width=64"}},
        // or one pair and a last layer that every rank has as a whole.
        {"OddMlp", {"--model=mlp", "--depth=2", "--width=64"}},
        {"Cnn", {"--model=simple_cnn"}}};
  }();
  return *kModels;
}

// Sums over ranks round in another order, which Adam magnifies if a gradient is
// nearly zero; in bf16 every rank's partial sum is rounded.
const std::map<std::string, Task>& Recipes() {
  static const auto* const kRecipes = [] {
    const Flags sgd = {"--optimizer=sgd", "--lr=0.05"};
    const Flags clipped = Joined(sgd, {"--clip_grad_norm=0.3"});
    return new std::map<std::string, Task>{
        {"Sgd", {"", clipped, {.weights = 1e-5, .losses = 1e-5}}},
        // A norm's bias sums contributions of 50257 logits, which nearly
        // cancel.
        {"ManyLogitsSgd", {"", clipped, {.weights = 1e-4, .losses = 1e-5}}},
        {"WholeSgd", {"", sgd, {.weights = 1e-5, .losses = 1e-5}, 1}},
        {"Adam",
         {"",
          {"--optimizer=adam", "--lr=0.001"},
          {.weights = 2e-4, .losses = 1e-5},
          0,
          /*key_bias_counts=*/false}},
        {"UnclippedBf16", {"", Joined(sgd, {"--precision=bf16"}), {}}},
        {"Bf16",
         {"",
          Joined(clipped, {"--precision=bf16"}),
          {.weights = 2e-2, .losses = 5e-4}}}};
  }();
  return *kRecipes;
}

Layout Hybrid(const std::string& name, int ranks, const Flags& flags,
              int replicas = 1) {
  return {name, "hybrid", ranks, replicas, flags};
}

Layout Fsdp(const std::string& name, int ranks, const Flags& flags) {
  return {name, "fsdp", ranks, /*replicas=*/ranks, flags};
}

std::map<std::string, Layout> MakeLayouts() {
  std::vector<Layout> layouts = {
      {"Single", "single"},
      {"Ddp2", "ddp", 2, 2},
      {"Ddp4", "ddp", 4, 4},
      {"Tp2", "tensor_parallel", 2, 1, {"--tp_overlap=3"}},
      {"Sp2",
       "tensor_parallel",
       2,
       1,
       {"--sequence_parallel", "--tp_overlap=2"}},
      Hybrid("Tp4", 4, {"--tp=4"}),
      Hybrid("Ring2", 2, {"--cp=2"}),
      Hybrid("Ulysses2", 2, {"--cp=2", "--context=ulysses"}),
      Hybrid("Sp2Ulysses2", 4,
             {"--tp=2", "--sequence_parallel", "--cp=2", "--context=ulysses"}),
      Hybrid("Tp2Dp2", 4, {"--tp=2"}, 2),
      Hybrid("Pp2Dp2", 4, {"--pp=2"}, 2),
      Hybrid("Pp2Sp2Recompute", 4,
             {"--pp=2", "--tp=2", "--sequence_parallel", "--recompute"}),
      Hybrid("Pp2Ring2", 4, {"--pp=2", "--cp=2"}),
      Hybrid("Pp2Dp2Tp2", 8, {"--pp=2", "--tp=2", "--mesh_order=tp,pp,cp,dp"},
             2),
      Hybrid("Tp2Zero3", 4, {"--tp=2", "--zero=3"}, 2),
      Hybrid("Pp2Zero1", 4, {"--pp=2", "--zero=1"}, 2),
      Hybrid("Pp2Zero3", 4, {"--pp=2", "--zero=3"}, 2),
      Hybrid(
          "Pp2Zero3InterleavedRecompute", 4,
          {"--pp=2", "--zero=3", "--schedule=interleaved_1f1b", "--recompute"},
          2),
      Fsdp("Zero1", 2, {"--zero=1"}),
      Fsdp("Zero2", 2, {"--zero=2", "--units=layer"}),
      Fsdp("Zero3", 2, {"--zero=3", "--prefetch=2"}),
      Fsdp("Zero3Recompute", 2, {"--recompute"}),
      Fsdp("Zero3EachMicrobatch", 2,
           {"--recompute", "--reduce_every_microbatch"}),
      Fsdp("Zero3Fp32Parameters", 2, {"--param_dtype=fp32"}),
      Fsdp("Zero1Of4", 4, {"--zero=1"}),
      Fsdp("Zero2Of4", 4, {"--zero=2"}),
      Fsdp("Zero3Of4", 4, {"--zero=3"}),
      Fsdp("Hsdp", 4, {"--zero=3", "--shard_ranks=2"})};
  const std::map<std::string, std::string> schedules = {
      {"Naive", "naive"},
      {"Gpipe", "gpipe"},
      {"1f1b", "1f1b"},
      {"Interleaved", "interleaved_1f1b"},
      {"ZeroBubbleH1", "zero_bubble_h1"},
      {"ZeroBubbleH2", "zero_bubble_h2"},
      {"ZeroBubbleAuto", "zero_bubble_auto"},
      {"Zbv", "zbv"},
      {"DualPipeV", "dualpipev"}};
  for (const auto& [name, schedule] : schedules) {
    layouts.push_back(Hybrid(absl::StrCat("Pp2Tp2", name), 4,
                             {"--pp=2", "--tp=2", "--schedule=" + schedule}));
  }
  std::map<std::string, Layout> by_name;
  for (const Layout& layout : layouts) by_name[layout.name] = layout;
  return by_name;
}

template <typename T>
const T& Named(const std::map<std::string, T>& table, const std::string& name) {
  const auto found = table.find(name);
  if (found != table.end()) return found->second;
  std::fprintf(stderr, "parity_cases.cc has no \"%s\"\n", name.c_str());
  std::abort();
}

const Layout& LayoutNamed(const std::string& name) {
  static const auto* const kLayouts = new auto(MakeLayouts());
  return Named(*kLayouts, name);
}

Task MakeTask(const std::string& model, const std::string& recipe) {
  Task task = Named(Recipes(), recipe);
  task.name = model + recipe;
  task.flags = Joined(Named(Models(), model), task.flags);
  return task;
}

Trained TrainTask(const Task& task, const Layout& layout,
                  const RunLength& length) {
  const int micro_batches =
      task.micro_batches > 0 ? task.micro_batches : length.micro_batches;
  const bool has_stages = layout.trainer == "hybrid";
  return Train(
      layout.trainer, layout.ranks,
      Joined(Joined(task.flags, layout.flags),
             {absl::StrCat(has_stages ? "--microbatches=" : "--accumulate=",
                           micro_batches),
              absl::StrCat("--batch_size=",
                           kExamples / micro_batches / layout.replicas),
              absl::StrCat("--train_size=", kExamples * length.steps / 2 - 6),
              "--test_size=9", "--epochs=2", "--seed=3"}),
      length.patience);
}

// A rank along cp has the loss of its own tokens, one along dp that of its own
// examples: their mean is the whole batch's.
std::vector<double> LossesOf(const Trained& run) {
  std::map<int64_t, double> means;
  for (const auto& of_rank : run.losses) {
    for (const auto& [step, loss] : of_rank)
      means[step] += loss / static_cast<double>(run.losses.size());
  }
  std::vector<double> losses;
  for (const auto& [step, loss] : means) losses.push_back(loss);
  for (const EvalRecord& evaluation : run.evaluations) {
    losses.push_back(evaluation.mean_loss);
    losses.push_back(static_cast<double>(evaluation.total));
  }
  return losses;
}

// In all blocks; queries, keys and values have a third each.
Weights WithoutKeyBias(Weights weights) {
  for (auto& [name, weight] : weights) {
    if (!absl::EndsWith(name, "attention.qkv.bias")) continue;
    weight = weight.clone();
    weight.chunk(3)[1].zero_();
  }
  return weights;
}

}  // namespace

std::string NameOf(const ParityCase& tested) {
  return absl::StrCat(tested.task.name, "_", tested.layout.name, "_",
                      tested.base.name);
}

void PrintTo(const ParityCase& tested, std::ostream* out) {
  *out << NameOf(tested);
}

std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts) {
  return Against(base, model, recipe, layouts, Named(Recipes(), recipe).bounds);
}

std::vector<ParityCase> Against(const std::string& base,
                                const std::string& model,
                                const std::string& recipe,
                                const std::vector<std::string>& layouts,
                                const Bounds& bounds) {
  std::vector<ParityCase> cases;
  for (const std::string& layout : layouts) {
    cases.push_back({MakeTask(model, recipe), LayoutNamed(layout),
                     LayoutNamed(base), bounds});
  }
  return cases;
}

const Trained& RunOf(const Task& task, const Layout& layout,
                     const RunLength& length) {
  static auto* const kRuns = new std::map<std::string, Trained>;
  const std::string name = absl::StrCat(task.name, "/", layout.name);
  const auto found = kRuns->find(name);
  if (found != kRuns->end()) return found->second;
  return kRuns->emplace(name, TrainTask(task, layout, length)).first->second;
}

Distances Compare(const Task& task, const Trained& base, const Trained& run) {
  Distances distances;
  distances.weights =
      task.key_bias_counts
          ? LargestDistance(base.weights, run.weights, &distances.weight)
          : LargestDistance(WithoutKeyBias(base.weights),
                            WithoutKeyBias(run.weights), &distances.weight);
  const std::vector<double> expected = LossesOf(base), losses = LossesOf(run);
  if (expected.size() != losses.size())
    distances.losses = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(expected.size(), losses.size()); ++i) {
    const double distance =
        std::abs(losses[i] - expected[i]) / std::abs(expected[i]);
    if (!(distance <= distances.losses)) distances.losses = distance;
  }
  return distances;
}

}  // namespace rankwise

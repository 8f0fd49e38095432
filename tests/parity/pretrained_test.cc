// Tests that every layout begins with the weights of a Hugging Face folder
// (--init_from), exports them again, and refuses folders that do not fit.

#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/trainer/trained.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

const Flags kRun = {"--model=llama",   "--batch_size=4", "--train_size=32",
                    "--test_size=8",   "--epochs=1",     "--max_steps=1",
                    "--optimizer=sgd", "--seed=1",       "--eval=false"};
// A step that changes no weight.
const Flags kStill = Joined(kRun, {"--lr=1e-30"});
const Flags kTiny = {"--depth=2",        "--width=32",
                     "--heads=4",        "--kv_heads=2",
                     "--head_width=16",  "--ffn_width=48",
                     "--vocabulary=257", "--sequence_length=16"};

struct Layout {
  const char* trainer;
  int ranks;
  Flags flags;
};

const std::vector<Layout>& Layouts() {
  static const auto* const kLayouts = new std::vector<Layout>{
      {"single", 1, {}},
      {"ddp", 2, {}},
      {"fsdp", 2, {}},
      {"hybrid", 2, {"--tp=2"}},
      {"hybrid", 4, {"--pp=2", "--tp=2", "--microbatches=2"}},
      {"hybrid", 4, {"--tp=2", "--dp=2", "--zero=3"}},
      {"data_parallel", 1, {"--replicas=2"}},
      {"parameter_server", 3, {"--servers=2"}},
  };
  return *kLayouts;
}

void ExpectSameWeights(const Weights& expected, const Weights& weights) {
  EXPECT_EQ(weights.size(), expected.size());
  for (const auto& [name, weight] : expected) {
    ASSERT_EQ(weights.count(name), 1) << name;
    EXPECT_TRUE(at::equal(weights.at(name), weight)) << name;
  }
}

nlohmann::json ConfigIn(const std::string& dir) {
  std::ifstream in(dir + "/config.json");
  return nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
}

void ExpectEveryLayoutBeginsWith(const Trained& source) {
  ASSERT_EQ(source.weights.count("model.layers.1.self_attn.k_proj.weight"), 1);
  const Flags begins =
      Joined(kStill, {absl::StrCat("--init_from=", source.dir)});
  for (const Layout& layout : Layouts()) {
    SCOPED_TRACE(absl::StrCat(layout.trainer, " on ", layout.ranks));
    const Trained run =
        Train(layout.trainer, layout.ranks, Joined(begins, layout.flags));
    ExpectSameWeights(source.weights, run.weights);
    EXPECT_EQ(ConfigIn(run.dir), ConfigIn(source.dir));
  }
}

TEST(PretrainedTest, EveryLayoutBeginsWithALlama) {
  ExpectEveryLayoutBeginsWith(Train(
      "single", 1,
      Joined(kRun, Joined(kTiny, {"--lr=0.1", "--rope_scaling=8,1,4,8"}))));
}

TEST(PretrainedTest, EveryLayoutBeginsWithATiedQwen3) {
  const Trained source = Train(
      "single", 1,
      Joined(kRun, Joined(kTiny, {"--lr=0.1", "--qk_norm=true",
                                  "--tied_head=true", "--norm_epsilon=1e-6"})));
  EXPECT_EQ(source.weights.count("lm_head.weight"), 0);
  ExpectEveryLayoutBeginsWith(source);
}

TEST(PretrainedTest, ExportsTheTypeAskedForAndReadsItAgain) {
  const Trained source = Train("single", 1, Joined(kStill, kTiny));
  const Trained rounded =
      Train("hybrid", 2,
            Joined(kStill, {absl::StrCat("--init_from=", source.dir), "--pp=2",
                            "--microbatches=2", "--export_dtype=bf16"}));
  EXPECT_EQ(ConfigIn(rounded.dir)["torch_dtype"], "bfloat16");
  Weights expected = source.weights, exact;
  for (auto& [name, weight] : expected) weight = weight.to(at::kBFloat16);
  ExpectSameWeights(expected, rounded.weights);
  for (const auto& [name, weight] : expected)
    exact[name] = weight.to(at::kFloat);
  ExpectSameWeights(
      exact, Train("single", 1,
                   Joined(kStill, {absl::StrCat("--init_from=", rounded.dir)}))
                 .weights);
}

TEST(PretrainedTest, AConfigurationAloneGivesTheDimensions) {
  const Trained source = Train("single", 1, Joined(kStill, kTiny));
  const Trained run =
      Train("single", 1,
            Joined(kStill,
                   {absl::StrCat("--model_config=", source.dir, "/config.json"),
                    "--depth=1"}));
  nlohmann::json expected = ConfigIn(source.dir);
  expected["num_hidden_layers"] = 1;
  EXPECT_EQ(ConfigIn(run.dir), expected);
}

TEST(PretrainedTest, RefusesWhatDoesNotFit) {
  const Trained source = Train("single", 1, Joined(kStill, kTiny));
  const std::string from = absl::StrCat("--init_from=", source.dir);
  const struct {
    Flags flags;
    std::string message;
  } cases[] = {
      {{"--init_from=/no_such_folder"}, "--init_from: /no_such_folder/config"},
      {{"--model_config=/no_such_file"}, "--model_config: /no_such_file: "},
      {{from, "--depth=3"},
       "--init_from: " + source.dir + ": lacks the tensor model.layers.2."},
      {{from, "--depth=1"}, "which a model of its configuration lacks"},
      {{from, "--ffn_width=64"}, "is of shape [32, 48], not [32, 64]"},
      {{from, "--model=gpt"}, "--init_from=" + source.dir + ": needs --model"},
      {{from, "--model_size=nano"}, "its config.json gives the size"},
      {{from, "--export_dtype=bf16"}, "needs --checkpoint_dir"},
  };
  for (const auto& c : cases) {
    const Finished run = RunTrainer("single", Joined(kStill, c.flags));
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_NE(run.err.find(c.message), std::string::npos) << c.message << "\n"
                                                          << run.err;
  }
}

}  // namespace
}  // namespace rankwise

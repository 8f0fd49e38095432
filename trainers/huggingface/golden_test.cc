// Compares the model llama, with weights of transformers' files, with
// transformers itself: trainers/models/goldens/make_llama_goldens.py.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/huggingface/config_file.h"
#include "trainers/huggingface/model_config.h"
#include "trainers/huggingface/weights_reader.h"
#include "trainers/loop/optimizer.h"
#include "trainers/models/model.h"

namespace rankwise {
namespace {

const char kFolder[] = "trainers/models/goldens/llama/";
constexpr int64_t kTokens = 32;

std::map<std::string, torch::Tensor> Expected() {
  const auto contents =
      LoadSafetensors(std::string(kFolder) + "expected.safetensors");
  EXPECT_TRUE(contents.ok()) << contents.status();
  return {contents->tensors.begin(), contents->tensors.end()};
}

class LlamaGoldenTest : public ::testing::TestWithParam<std::string> {
 protected:
  LlamaGoldenTest() {
    const std::string dir = kFolder + GetParam();
    const auto config = ReadHuggingFaceConfig(dir + "/config.json");
    EXPECT_TRUE(config.ok()) << config.status();
    ModelConfig llama{.name = "llama", .sequence_length = kTokens};
    FillModelConfig(*config, llama);
    model_ = std::make_shared<Model>(*MakeModelSpec(llama));
    const auto weights = HuggingFaceWeights::Open(dir, *config);
    EXPECT_TRUE(weights.ok()) << weights.status();
    const at::NoGradGuard no_grad;
    for (const auto& entry : model_->named_parameters()) {
      const absl::Status read =
          weights->Read({.name = entry.key(), .values = entry.value()});
      EXPECT_TRUE(read.ok()) << read;
    }
  }

  std::shared_ptr<Model> model_;
};

TEST_P(LlamaGoldenTest, HasTheLogitsOfTransformers) {
  const at::NoGradGuard no_grad;
  auto expected = Expected();
  const torch::Tensor error =
      model_->Forward(expected["input_ids"]) - expected[GetParam()];
  EXPECT_LE(error.abs().max().item<double>(), 2e-5);
}

TEST_P(LlamaGoldenTest, LearnsAsTransformers) {
  const torch::Tensor batches = Expected()["batches"];
  std::ifstream file(std::string(kFolder) + "losses.json");
  const std::vector<double> losses =
      nlohmann::json::parse(file)[GetParam()].get<std::vector<double>>();
  ASSERT_EQ(static_cast<int64_t>(losses.size()), batches.size(0));
  NamedTensors parameters;
  for (const auto& entry : model_->named_parameters())
    parameters.emplace_back(entry.key(), entry.value());
  Optimizer optimizer(parameters, {.name = "adamw", .weight_decay = 0.01});
  for (size_t step = 0; step < losses.size(); ++step) {
    const torch::Tensor batch = batches[static_cast<int64_t>(step)];
    const torch::Tensor loss =
        model_->LossOf(model_->Forward(batch.slice(1, 0, kTokens)),
                       batch.slice(1, 1, kTokens + 1));
    EXPECT_NEAR(loss.item<double>(), losses[step], 1e-4) << "step " << step;
    optimizer.ZeroGrad();
    loss.backward();
    optimizer.Step(/*learning_rate=*/1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LlamaGoldenTest,
                         ::testing::Values("llama_tied_1_kv_head",
                                           "llama_scaled_rope", "llama_sharded",
                                           "qwen3_1_kv_head",
                                           "qwen3_tied_old_config"));

}  // namespace
}  // namespace rankwise

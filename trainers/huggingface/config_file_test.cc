#include "trainers/huggingface/config_file.h"

#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "trainers/huggingface/expect_equal_for_test.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

std::string Path() { return testing::TempDir() + "/config.json"; }

absl::StatusOr<HuggingFaceConfig> ReadText(const std::string& text) {
  std::ofstream(Path()) << text;
  return ReadHuggingFaceConfig(Path());
}

// Llama 3.2 1B, as published.
Json Llama() {
  return Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "eos_token_id": 128001,
    "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
    "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
        "rope_type": "llama3"},
    "rope_theta": 500000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0",
    "use_cache": true, "vocab_size": 128256})");
}

// Qwen3 0.6B, in the form of transformers 5.
Json Qwen3() {
  return Json::parse(R"({
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "dtype": "bfloat16", "head_dim": 128,
    "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
    "layer_types": ["full_attention", "full_attention"],
    "max_position_embeddings": 40960, "max_window_layers": 28,
    "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    "sliding_window": null, "tie_word_embeddings": true,
    "use_sliding_window": false, "vocab_size": 151936})");
}

TEST(HuggingFaceConfigTest, ReadsPublishedFiles) {
  const auto llama = ReadText(Llama().dump());
  ASSERT_TRUE(llama.ok()) << llama.status();
  ExpectEqual(*llama, {.qk_norm = false,
                       .vocab_size = 128256,
                       .hidden_size = 2048,
                       .intermediate_size = 8192,
                       .num_hidden_layers = 16,
                       .num_attention_heads = 32,
                       .num_key_value_heads = 8,
                       .head_dim = 64,
                       .max_position_embeddings = 131072,
                       .rms_norm_eps = 1e-5,
                       .rope_theta = 500000,
                       .rope_scaling = {{32, 1, 4, 8192}},
                       .tie_word_embeddings = true});
  const auto qwen3 = ReadText(Qwen3().dump());
  ASSERT_TRUE(qwen3.ok()) << qwen3.status();
  ExpectEqual(*qwen3, {.qk_norm = true,
                       .vocab_size = 151936,
                       .hidden_size = 1024,
                       .intermediate_size = 3072,
                       .num_hidden_layers = 28,
                       .num_attention_heads = 16,
                       .num_key_value_heads = 8,
                       .head_dim = 128,
                       .max_position_embeddings = 40960,
                       .rms_norm_eps = 1e-6,
                       .rope_theta = 1000000,
                       .tie_word_embeddings = true});
}

TEST(HuggingFaceConfigTest, OlderFilesHaveDefaultsAndEitherFormOfRope) {
  Json old = Llama();
  for (const char* name :
       {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling",
        "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act"})
    old.erase(name);
  const auto config = ReadText(old.dump());
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_key_value_heads, 32);
  EXPECT_EQ(config->head_dim, 64);
  EXPECT_EQ(config->rope_theta, 10000);
  EXPECT_FALSE(config->rope_scaling.has_value());
  EXPECT_FALSE(config->tie_word_embeddings);

  Json renamed = Llama();
  renamed["rope_parameters"] = renamed["rope_scaling"];
  renamed["rope_parameters"]["rope_theta"] = renamed["rope_theta"];
  renamed.erase("rope_scaling");
  renamed.erase("rope_theta");
  const auto newer = ReadText(renamed.dump());
  ASSERT_TRUE(newer.ok()) << newer.status();
  ExpectEqual(*newer, *ReadText(Llama().dump()));
}

TEST(HuggingFaceConfigTest, RefusesWhatTheModelsDoNotCompute) {
  const struct {
    const char* change;  // merged into Llama(); null removes
    const char* complaint;
  } cases[] = {
      {R"({"architectures": ["MistralForCausalLM"]})",
       R"(architectures is ["MistralForCausalLM"]; ["LlamaForCausalLM"] and )"
       R"(["Qwen3ForCausalLM"] are supported)"},
      {R"({"architectures": null})", "architectures is missing"},
      {R"({"hidden_act": "gelu"})",
       R"(hidden_act is "gelu"; only "silu" is supported)"},
      {R"({"attention_bias": true})", "attention_bias is true; linear layers"},
      {R"({"mlp_bias": true})", "mlp_bias is true; linear layers"},
      {R"({"attention_dropout": 0.1})",
       "attention_dropout is 0.1; only 0 is supported"},
      {R"({"use_sliding_window": true})", "use_sliding_window is true"},
      {R"({"layer_types": ["full_attention", "sliding_attention"]})",
       R"(layer_types has "sliding_attention")"},
      {R"({"quantization_config": {"bits": 4}})",
       R"(quantization_config is {"bits":4}; quantized weights)"},
      {R"({"rope_scaling": {"rope_type": "yarn"}})",
       R"(rope_scaling: rope type "yarn"; "default" and "llama3")"},
      {R"({"rope_scaling": {"rope_type": null, "type": "linear"}})",
       R"(rope type "linear")"},
      {R"({"rope_scaling": 8})", "rope_scaling is 8, not an object"},
      {R"({"rope_scaling": {"factor": null}})",
       "rope_scaling: factor is missing; it must be a positive number"},
      {R"({"rope_scaling": {"low_freq_factor": 4.0}})",
       "high_freq_factor must be greater than low_freq_factor"},
      {R"({"rope_parameters": {"partial_rotary_factor": 0.5}})",
       "rope_parameters: partial_rotary_factor is 0.5; only 1"},
      {R"({"partial_rotary_factor": 0.5})",
       "partial_rotary_factor is 0.5; only 1"},
      {R"({"rope_theta": -1})", "rope_theta is -1; it must be a positive"},
      {R"({"vocab_size": null})",
       "vocab_size is missing; it must be a whole number from 1"},
      {R"({"hidden_size": 0})", "hidden_size is 0"},
      {R"({"intermediate_size": 2.5})", "intermediate_size is 2.5"},
      {R"({"num_hidden_layers": "16"})", R"(num_hidden_layers is "16")"},
      {R"({"num_attention_heads": -32})", "num_attention_heads is -32"},
      {R"({"max_position_embeddings": null})",
       "max_position_embeddings is missing"},
      {R"({"rms_norm_eps": null})", "rms_norm_eps is missing"},
      {R"({"num_key_value_heads": 5})",
       "num_key_value_heads is 5; it must divide num_attention_heads, 32"},
      {R"({"head_dim": 63})", "head_dim is 63; it must be even"},
      {R"({"head_dim": null, "hidden_size": 2047})", "head_dim is missing"},
      {R"({"architectures": ["Qwen3ForCausalLM"], "head_dim": null})",
       "head_dim is missing"},
      {R"({"tie_word_embeddings": 1})", "tie_word_embeddings is 1"},
  };
  for (const auto& c : cases) {
    Json json = Llama();
    json.merge_patch(Json::parse(c.change));
    const absl::Status status = ReadText(json.dump()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.change << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(Path() + ": "), HasSubstr(c.complaint)));
  }
}

TEST(HuggingFaceConfigTest, RefusesWhatIsNoConfig) {
  for (const std::string& text :
       {std::string("{\"hidden_size\": "), std::string("[]"), std::string(),
        std::string(1 << 20, '[')}) {
    EXPECT_THAT(std::string(ReadText(text).status().message()),
                HasSubstr(Path() + ": is not a JSON object"));
  }
  const auto missing = ReadHuggingFaceConfig(Path() + ".missing");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr(Path() + ".missing"));
}

TEST(HuggingFaceConfigTest, ReadsWhatItWrites) {
  for (const Json& json : {Llama(), Qwen3()}) {
    const auto config = ReadText(json.dump());
    ASSERT_TRUE(config.ok()) << config.status();
    ASSERT_TRUE(WriteHuggingFaceConfig(Path(), *config, at::kBFloat16).ok());
    const auto again = ReadHuggingFaceConfig(Path());
    ASSERT_TRUE(again.ok()) << again.status();
    ExpectEqual(*again, *config);
    std::ifstream in(Path());
    const Json written = Json::parse(in);
    EXPECT_EQ(written["architectures"], json["architectures"]);
    EXPECT_EQ(written["model_type"], json["model_type"]);
    EXPECT_EQ(written["torch_dtype"], "bfloat16");
    EXPECT_FALSE(written.contains("bos_token_id"));
  }
}

}  // namespace
}  // namespace rankwise

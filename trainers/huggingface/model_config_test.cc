#include "trainers/huggingface/model_config.h"

#include "gtest/gtest.h"

namespace rankwise {
namespace {

HuggingFaceConfig Published() {
  return {.qk_norm = true,
          .vocab_size = 300,
          .hidden_size = 48,
          .intermediate_size = 80,
          .num_hidden_layers = 3,
          .num_attention_heads = 6,
          .num_key_value_heads = 2,
          .head_dim = 16,
          .max_position_embeddings = 131072,
          .rms_norm_eps = 3e-6,
          .rope_theta = 20000,
          .rope_scaling = {{32, 1, 4, 4096}},
          .tie_word_embeddings = true};
}

TEST(ModelConfigTest, KeepsEveryValue) {
  ModelConfig model{.name = "llama"};
  FillModelConfig(Published(), model);
  EXPECT_EQ(model.sequence_length, 8192);
  const auto config = HuggingFaceConfigOf(model);
  ASSERT_TRUE(config.ok()) << config.status();
  const HuggingFaceConfig expected = Published();
  EXPECT_EQ(config->qk_norm, expected.qk_norm);
  EXPECT_EQ(config->vocab_size, expected.vocab_size);
  EXPECT_EQ(config->hidden_size, expected.hidden_size);
  EXPECT_EQ(config->intermediate_size, expected.intermediate_size);
  EXPECT_EQ(config->num_hidden_layers, expected.num_hidden_layers);
  EXPECT_EQ(config->num_attention_heads, expected.num_attention_heads);
  EXPECT_EQ(config->num_key_value_heads, expected.num_key_value_heads);
  EXPECT_EQ(config->head_dim, expected.head_dim);
  EXPECT_EQ(config->max_position_embeddings, expected.max_position_embeddings);
  EXPECT_EQ(config->rms_norm_eps, expected.rms_norm_eps);
  EXPECT_EQ(config->rope_theta, expected.rope_theta);
  ASSERT_TRUE(config->rope_scaling.has_value());
  EXPECT_EQ(config->rope_scaling->factor, 32);
  EXPECT_EQ(config->rope_scaling->original_tokens, 4096);
  EXPECT_EQ(config->tie_word_embeddings, expected.tie_word_embeddings);
}

TEST(ModelConfigTest, FieldsThatAreSetStay) {
  ModelConfig model{.name = "llama",
                    .depth = 1,
                    .sequence_length = 64,
                    .tied_head = false,
                    .ffn_width = 32};
  FillModelConfig(Published(), model);
  EXPECT_EQ(model.sequence_length, 64);
  const auto config = HuggingFaceConfigOf(model);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->num_hidden_layers, 1);
  EXPECT_EQ(config->intermediate_size, 32);
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->hidden_size, 48);
}

}  // namespace
}  // namespace rankwise

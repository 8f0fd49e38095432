#include "trainers/huggingface/model_config.h"

#include "gtest/gtest.h"
#include "trainers/huggingface/expect_equal_for_test.h"

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
  ExpectEqual(*config, Published());
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

#ifndef RANKWISE_TRAINERS_HUGGINGFACE_EXPECT_EQUAL_FOR_TEST_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_EXPECT_EQUAL_FOR_TEST_H_

#include "gtest/gtest.h"
#include "trainers/huggingface/config_file.h"

namespace rankwise {

// Expects all fields to be equal.
inline void ExpectEqual(const HuggingFaceConfig& a,
                        const HuggingFaceConfig& b) {
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_hidden_layers, b.num_hidden_layers);
  EXPECT_EQ(a.num_attention_heads, b.num_attention_heads);
  EXPECT_EQ(a.num_key_value_heads, b.num_key_value_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.max_position_embeddings, b.max_position_embeddings);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.tie_word_embeddings, b.tie_word_embeddings);
  ASSERT_EQ(a.rope_scaling.has_value(), b.rope_scaling.has_value());
  if (!a.rope_scaling.has_value()) return;
  EXPECT_EQ(a.rope_scaling->factor, b.rope_scaling->factor);
  EXPECT_EQ(a.rope_scaling->low_frequency_factor,
            b.rope_scaling->low_frequency_factor);
  EXPECT_EQ(a.rope_scaling->high_frequency_factor,
            b.rope_scaling->high_frequency_factor);
  EXPECT_EQ(a.rope_scaling->original_tokens, b.rope_scaling->original_tokens);
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_EXPECT_EQUAL_FOR_TEST_H_

#include "trainers/huggingface/model_config.h"

#include <algorithm>
#include <cstdint>

#include "third_party/absl/status_macros.h"
#include "trainers/models/llama.h"

namespace rankwise {

void FillModelConfig(const HuggingFaceConfig& file, ModelConfig& model) {
  constexpr int64_t kMostTokens = 8192;
  const auto fill = [](auto& field, auto value) {
    if (field == 0) field = value;
  };
  fill(model.depth, file.num_hidden_layers);
  fill(model.width, file.hidden_size);
  fill(model.sequence_length,
       std::min(file.max_position_embeddings, kMostTokens));
  fill(model.vocabulary, file.vocab_size);
  fill(model.heads, file.num_attention_heads);
  fill(model.kv_heads, file.num_key_value_heads);
  fill(model.head_width, file.head_dim);
  fill(model.ffn_width, file.intermediate_size);
  fill(model.norm_epsilon, file.rms_norm_eps);
  fill(model.rope_theta, file.rope_theta);
  fill(model.max_positions, file.max_position_embeddings);
  if (!model.rope_scaling.has_value()) model.rope_scaling = file.rope_scaling;
  model.tied_head = model.tied_head.value_or(file.tie_word_embeddings);
  model.qk_norm = model.qk_norm.value_or(file.qk_norm);
}

absl::StatusOr<HuggingFaceConfig> HuggingFaceConfigOf(
    const ModelConfig& model) {
  ASSIGN_OR_RETURN(const LlamaSize size, ChooseLlamaSize(model));
  return HuggingFaceConfig{.qk_norm = size.qk_norm,
                           .vocab_size = size.vocabulary,
                           .hidden_size = size.width,
                           .intermediate_size = size.ffn_width,
                           .num_hidden_layers = size.depth,
                           .num_attention_heads = size.heads,
                           .num_key_value_heads = size.kv_heads,
                           .head_dim = size.head_width,
                           .max_position_embeddings = std::max(
                               model.max_positions, size.sequence_length),
                           .rms_norm_eps = size.norm_epsilon,
                           .rope_theta = size.rope_theta,
                           .rope_scaling = size.rope_scaling,
                           .tie_word_embeddings = size.tied_head};
}

}  // namespace rankwise

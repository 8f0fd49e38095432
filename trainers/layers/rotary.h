#ifndef RANKWISE_TRAINERS_LAYERS_ROTARY_H_
#define RANKWISE_TRAINERS_LAYERS_ROTARY_H_

#include <torch/types.h>

#include <cstdint>
#include <optional>

namespace rankwise {

// Llama 3's extension of the context by lower frequencies (Grattafiori et al.
// 2024; rope type "llama3" of Hugging Face's transformers).
struct RopeScaling {
  // Divides frequencies whose wavelengths exceed original_tokens /
  // low_frequency_factor; those of wavelengths under original_tokens /
  // high_frequency_factor are unchanged, others are interpolated.
  double factor = 8;
  double low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_tokens = 8192;  // context of the model before the extension
};

// Cosines and sines of each position's angles, fp32 [tokens, features / 2].
struct RotaryAngles {
  torch::Tensor cos, sin;
};

// Returns the angles position / theta^(2 i / features) of the pairs i of a head
// (Su et al. 2021, "RoFormer", section 3.2.2). positions: int64 [tokens];
// features: of a head, even. In fp32, rounded as by transformers.
RotaryAngles RotaryTable(
    const torch::Tensor& positions, int64_t features, double theta,
    const std::optional<RopeScaling>& scaling = std::nullopt);

// Rotates the queries and keys of qkv [B, tokens, (heads + 2 * kv_heads) *
// features] by the angles of their tokens, and copies the values. Pairs are the
// features i and i + features / 2 of a head, as in Hugging Face's weights. In
// fp32 at least, rounded once to the type of qkv. Stores only cos and sin.
// Cannot be differentiated twice.
torch::Tensor Rotary(const torch::Tensor& qkv, int64_t heads, int64_t kv_heads,
                     const torch::Tensor& cos, const torch::Tensor& sin);

// Applies RmsNorm to each head of the queries and of the keys of qkv, with
// weights [features], and copies the values: before Rotary in Qwen3 (Yang et
// al. 2025, section 2; Dehghani et al. 2023, section 2).
torch::Tensor QkNorm(const torch::Tensor& qkv, int64_t heads, int64_t kv_heads,
                     const torch::Tensor& q_norm, const torch::Tensor& k_norm,
                     double epsilon);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_ROTARY_H_

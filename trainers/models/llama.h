// Llama's dimensions, as chosen by flags.
#ifndef RANKWISE_TRAINERS_MODELS_LLAMA_H_
#define RANKWISE_TRAINERS_MODELS_LLAMA_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "trainers/layers/rotary.h"
#include "trainers/models/model.h"

namespace rankwise {

struct LlamaSize {
  std::string name;
  int64_t depth = 0, width = 0;
  int64_t heads = 0, kv_heads = 0, head_width = 0;
  int64_t ffn_width = 0;  // hidden features of the MLP
  int64_t vocabulary = 0, sequence_length = 0;
  bool tied_head = false;
  bool qk_norm = false;  // normalises each head's queries and keys, as Qwen3
  double norm_epsilon = 1e-5;
  double rope_theta = 500'000;
  std::optional<RopeScaling> rope_scaling = {};
};

// Returns the size that `config` names, or `nano`, with the fields that
// `config` overrides. A different width alone keeps head_width and scales
// ffn_width. InvalidArgument, with the flag as typed.
absl::StatusOr<LlamaSize> ChooseLlamaSize(const ModelConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_LLAMA_H_

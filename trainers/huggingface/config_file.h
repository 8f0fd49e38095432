// Reads and writes config.json of Hugging Face's transformers.
#ifndef RANKWISE_TRAINERS_HUGGINGFACE_CONFIG_FILE_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_CONFIG_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/layers/rotary.h"

namespace rankwise {

// Dimensions of a LlamaForCausalLM or Qwen3ForCausalLM, named as in the file.
struct HuggingFaceConfig {
  // Whether each head's queries and keys are normalised: Qwen3ForCausalLM.
  bool qk_norm = false;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // hidden features of the MLP
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // divides num_attention_heads
  int64_t head_dim = 0;             // even
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  double rope_theta = 10'000;
  std::optional<RopeScaling> rope_scaling = {};  // of rope type "llama3"
  bool tie_word_embeddings = false;
};

// Reads `path`. InvalidArgument, with the path and the field, for what our
// models do not compute: other architectures and activations, biases of
// attention or MLP, dropout, sliding windows, quantized weights, other types of
// rotary positions; and for missing or impossible values. Fields that older
// files leave out have the defaults of transformers. Other fields are ignored.
absl::StatusOr<HuggingFaceConfig> ReadHuggingFaceConfig(
    const std::string& path);

// Writes `path`, as ReplaceFile does, for weights of type `type` (fp32, bf16 or
// fp16), so that AutoModelForCausalLM.from_pretrained reads its folder.
absl::Status WriteHuggingFaceConfig(const std::string& path,
                                    const HuggingFaceConfig& config,
                                    torch::ScalarType type);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_CONFIG_FILE_H_

// Which model, and how large.
#ifndef RANKWISE_TRAINERS_MODELS_MODEL_CONFIG_H_
#define RANKWISE_TRAINERS_MODELS_MODEL_CONFIG_H_

#include <cstdint>
#include <string>

namespace rankwise {

// Zero and empty mean the model's own default; a model refuses a field that it
// has no use for.
struct ModelConfig {
  std::string name = "simple_cnn";
  std::string size = {};        // gpt, vit: a named size
  int64_t depth = 0;            // mlp, gpt, vit: hidden layers or blocks
  int64_t width = 0;            // mlp, gpt, vit: features between layers
  int64_t sequence_length = 0;  // gpt: tokens per example
  double dropout = 0;           // gpt, vit
  bool tied_head = true;        // gpt: the head is the token embedding
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MODEL_CONFIG_H_

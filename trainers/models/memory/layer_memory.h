// The memory of one rank's part of a layer, in numbers and in bytes.
#ifndef RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_
#define RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_

#include <cstdint>
#include <vector>

namespace rankwise {

// Tensors that a layer's forward stores for its backward on this rank: numbers
// per example, except for cast_weights. A tensor shared by two layers counts in
// the later one, whose input it is; the batch itself does not count.
struct KeptForBackward {
  double values = 0;  // of --precision's type
  // fp32 under any precision, except on a CPU with bf16 parameters: bf16.
  double wide_values = 0;
  // Outputs of ReluMaxPool: each stores a byte on a CPU, and elsewhere its four
  // input values and the index of the largest, in 64 bits.
  double pooled_values = 0;
  double dropout_masks = 0;  // as large as a value on a CPU, else a byte
  // For attention without a fused kernel: with dropout on a CPU.
  double attention_weights = 0;
  // Added by autocast: copies of inputs that count nowhere else, and of the
  // weights, once per forward.
  double cast_values = 0, cast_weights = 0;
  // In addition, of --precision's type, from the inputs' gradients until the
  // weights', if a pipeline computes these later: gradients of outputs, less
  // tensors that only the inputs' needed. 0 if unknown.
  double until_weight_grad = 0;
};

// How the numbers of KeptForBackward are stored.
struct KeptTypes {
  double value_bytes = 4, wide_bytes = 4, mask_bytes = 1;
  double attention_weight_bytes = 0;  // 0 for fused kernels
  double pooled_bytes = 1;
  bool casts = false;          // autocast is on
  bool casts_weights = false;  // autocast is on, parameters are fp32
};

double KeptBytes(const KeptForBackward& kept, double examples,
                 const KeptTypes& types);

using ParameterShapes = std::vector<std::vector<int64_t>>;

struct LayerMemory {
  ParameterShapes parameters;
  KeptForBackward kept;
};

// One rank's part of a transformer.
struct TransformerPart {
  int64_t features = 0, heads = 0;  // of the whole model
  int64_t tensor = 1;               // ranks along tp
  // Tokens of an example: all; on this rank along cp; on this rank between
  // layers.
  int64_t tokens = 0, tokens_here = 0, tokens_between = 0;
  bool dropout = false;
  bool copies_attention =
      false;  // Ulysses returns attention's output as a copy
  // Counts the row sums of attention, and the norms' means and deviations.
  bool has_statistics = true;

  double StreamValues() const {  // between layers
    return static_cast<double>(tokens_between * features);
  }
};

// The layers built by trainers/models/transformer.cc and vocabulary.cc: an
// embedding of tokens and, if `positions`, of positions, a block and a norm.
LayerMemory EmbeddingMemory(const TransformerPart& part, int64_t vocabulary,
                            bool positions);
LayerMemory BlockMemory(const TransformerPart& part);
LayerMemory NormMemory(const TransformerPart& part);
// The output layer. `parameters` lists its weight even if it is tied to the
// embedding's. The loss is not included.
LayerMemory HeadMemory(const TransformerPart& part, int64_t vocabulary);

// One rank's part of llama's block.
struct LlamaPart {
  TransformerPart transformer;
  int64_t kv_heads = 0, head_width = 0, ffn_width = 0;  // of the whole model
  bool qk_norm = false;
};

LayerMemory LlamaBlockMemory(const LlamaPart& part);
LayerMemory RmsNormMemory(const TransformerPart& part);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_

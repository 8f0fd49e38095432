// What one rank's part of a layer holds in memory, in numbers and in bytes.
#ifndef RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_
#define RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_

#include <cstdint>
#include <vector>

namespace rankwise {

// What a layer's forward keeps for its backward on this rank: numbers of each
// example, but for cast_weights. What two layers share counts in the later one,
// whose input it is; the batch itself does not count.
struct KeptForBackward {
  double values = 0;  // of --precision's type
  // fp32 under any precision, except on a CPU with bf16 parameters: bf16.
  double wide_values = 0;
  // Outputs of ReluMaxPool, of which each keeps a byte on a CPU, and elsewhere
  // the four values that it is the largest of and where it came from, in 64
  // bits.
  double pooled_values = 0;
  double dropout_masks = 0;  // as large as a value on a CPU, else a byte
  // Of attention that no fused kernel computes: with dropout on a CPU.
  double attention_weights = 0;
  // What autocast adds: copies of an input that counts nowhere else, and of
  // the weights, once per forward.
  double cast_values = 0, cast_weights = 0;
  // On top of all, of --precision's type, from the gradients of the inputs
  // until those of the weights, where a pipeline computes these later: the
  // gradients of outputs, less what only the inputs' needed. 0 where it is not
  // known.
  double until_weight_grad = 0;
};

// How the numbers of KeptForBackward are stored.
struct KeptTypes {
  double value_bytes = 4, wide_bytes = 4, mask_bytes = 1;
  double attention_weight_bytes = 0;  // 0: fused kernels keep none
  double pooled_bytes = 1;
  bool casts = false;          // autocast is on
  bool casts_weights = false;  // and parameters are fp32
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
  // Tokens of an example: all; those of this rank along cp; those of this rank
  // between layers.
  int64_t tokens = 0, tokens_here = 0, tokens_between = 0;
  bool dropout = false;
  bool copies_attention =
      false;  // Ulysses returns attention's output as a copy
  // Counts the sums of attention's rows, and the norms' means and deviations.
  bool has_statistics = true;

  double StreamValues() const {  // between layers
    return static_cast<double>(tokens_between * features);
  }
};

// The layers that trainers/models/transformer.cc and gpt.cc build: an embedding
// of tokens and positions.
LayerMemory EmbeddingMemory(const TransformerPart& part, int64_t vocabulary);
LayerMemory BlockMemory(const TransformerPart& part);
LayerMemory NormMemory(const TransformerPart& part);
// The output layer. `parameters` lists its weight even if it is tied to the
// embedding's. The loss is not included.
LayerMemory HeadMemory(const TransformerPart& part, int64_t vocabulary);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_MEMORY_LAYER_MEMORY_H_

#include "trainers/models/memory/layer_memory.h"

#include <algorithm>
#include <utility>

namespace rankwise {
namespace {

// Returns a rank's part of the vocabulary along tp; the last ones are padded.
std::vector<int64_t> TokenWeightShape(const TransformerPart& part,
                                      int64_t vocabulary) {
  return {(vocabulary + part.tensor - 1) / part.tensor, part.features};
}

// Per token h features, a heads and t ranks along tp. Korthikanti et al. 2022,
// table 2, counts bytes of 16-bit values; these are the values: for "tensor and
// sequence parallel", 34 h / t without masks of 2 h, 16 h / t values; without
// --sequence_parallel 4 h of them, the norms' inputs and outputs, are on every
// rank. Its 5 a s, the attention's weights, are not stored: fused kernels
// recompute them from their row sums, as in the paper's selective
// recomputation.
KeptForBackward KeptByBlock(const TransformerPart& part) {
  const auto h = static_cast<double>(part.features);
  const auto t = static_cast<double>(part.tensor);
  const double a = static_cast<double>(part.heads) / t;
  const auto here = static_cast<double>(part.tokens_here);
  const auto between = static_cast<double>(part.tokens_between);
  KeptForBackward kept;
  // The norms' outputs; q, k, v and attention's output; GELU's input and
  // output.
  kept.values = between * 2 * h + here * (3 + 1 + 4 + 4) * h / t;
  if (part.copies_attention) kept.values += here * h / t;
  // The norms' inputs, the residual stream.
  kept.wide_values = between * 2 * h;
  if (part.has_statistics) {
    kept.wide_values += between * 4;
    // Attention's row sums are always fp32: two values each if casts are
    // 16-bit.
    kept.values += here * a;
    kept.cast_values = here * a;
  }
  kept.cast_weights = 12 * h * h / t;
  // Gradients of the two norms' outputs, and of two additions to the residual
  // stream. Those of q, k, v and GELU's input replace the tensors themselves.
  kept.until_weight_grad = 4 * between * h;
  if (!part.dropout) return kept;
  kept.dropout_masks = between * 2 * h;
  // Softmax, its mask and the masked result.
  kept.attention_weights = 3 * a * here * static_cast<double>(part.tokens);
  return kept;
}

// As KeptByBlock, for llama's block: per token, a rank has q features of
// queries, kv of keys and as many of values, and f of the MLP's hidden layer.
KeptForBackward KeptByLlamaBlock(const LlamaPart& part) {
  const TransformerPart& transformer = part.transformer;
  const auto h = static_cast<double>(transformer.features);
  const auto ranks = static_cast<double>(transformer.tensor);
  const double heads = static_cast<double>(transformer.heads) / ranks;
  const double kv_heads =
      std::max(static_cast<double>(part.kv_heads) / ranks, 1.0);
  const double q = heads * static_cast<double>(part.head_width);
  const double kv = kv_heads * static_cast<double>(part.head_width);
  const double f = static_cast<double>(part.ffn_width) / ranks;
  const auto here = static_cast<double>(transformer.tokens_here);
  const auto between = static_cast<double>(transformer.tokens_between);
  KeptForBackward kept;
  // The norms' outputs; queries, keys and values, and attention's output; the
  // MLP's gate, up and their product.
  kept.values = between * 2 * h + here * (2 * q + 2 * kv + 3 * f);
  if (transformer.copies_attention) kept.values += here * q;
  // The queries and keys before their norms.
  if (part.qk_norm) kept.values += here * (q + kv);
  // The norms' inputs, the residual stream.
  kept.wide_values = between * 2 * h;
  if (transformer.has_statistics) {
    kept.wide_values += between * 2;
    if (part.qk_norm) kept.wide_values += here * (heads + kv_heads);
    // Attention's row sums, as in KeptByBlock.
    kept.values += here * heads;
    kept.cast_values = here * heads;
  }
  kept.cast_weights =
      h * (2 * q +
           2 * static_cast<double>(part.kv_heads * part.head_width) / ranks +
           3 * f);
  kept.until_weight_grad = 4 * between * h;
  return kept;
}

}  // namespace

double KeptBytes(const KeptForBackward& kept, double examples,
                 const KeptTypes& types) {
  const double values = kept.values + (types.casts ? kept.cast_values : 0);
  const double of_example =
      types.value_bytes * values + types.wide_bytes * kept.wide_values +
      types.mask_bytes * kept.dropout_masks +
      types.attention_weight_bytes * kept.attention_weights +
      types.pooled_bytes * kept.pooled_values;
  return examples * of_example +
         (types.casts_weights ? types.value_bytes * kept.cast_weights : 0);
}

LayerMemory EmbeddingMemory(const TransformerPart& part, int64_t vocabulary,
                            bool positions) {
  ParameterShapes parameters = {TokenWeightShape(part, vocabulary)};
  if (positions) parameters.push_back({part.tokens, part.features});
  return {.parameters = std::move(parameters),
          .kept = {.dropout_masks = part.dropout ? part.StreamValues() : 0}};
}

LayerMemory BlockMemory(const TransformerPart& part) {
  const int64_t features = part.features, divided = features / part.tensor;
  return {.parameters = {{features},
                         {features},  // norm1
                         {3 * divided, features},
                         {3 * divided},
                         {features, divided},
                         {features},
                         {features},
                         {features},  // norm2
                         {4 * divided, features},
                         {4 * divided},
                         {features, 4 * divided},
                         {features}},
          .kept = KeptByBlock(part)};
}

LayerMemory NormMemory(const TransformerPart& part) {
  // The input, and each token's mean and deviation.
  const int64_t statistics = part.has_statistics ? 2 : 0;
  return {.parameters = {{part.features}, {part.features}},
          .kept = {.wide_values = static_cast<double>(
                       part.tokens_between * (part.features + statistics)),
                   .until_weight_grad = part.StreamValues()}};
}

LayerMemory HeadMemory(const TransformerPart& part, int64_t vocabulary) {
  const std::vector<int64_t> weight = TokenWeightShape(part, vocabulary);
  return {.parameters = {weight},
          .kept = {.values = part.StreamValues(),
                   .cast_weights = static_cast<double>(weight[0] * weight[1])}};
}

LayerMemory LlamaBlockMemory(const LlamaPart& part) {
  const TransformerPart& transformer = part.transformer;
  const int64_t features = transformer.features;
  const int64_t ranks = transformer.tensor;
  const int64_t queries = transformer.heads * part.head_width / ranks;
  const int64_t kv = part.kv_heads * part.head_width / ranks;
  const int64_t ffn = part.ffn_width / ranks;
  ParameterShapes parameters = {{features}, {queries + 2 * kv, features}};
  if (part.qk_norm) {
    parameters.push_back({part.head_width});
    parameters.push_back({part.head_width});
  }
  parameters.insert(
      parameters.end(),
      {{features, queries}, {features}, {2 * ffn, features}, {features, ffn}});
  return {.parameters = std::move(parameters), .kept = KeptByLlamaBlock(part)};
}

LayerMemory RmsNormMemory(const TransformerPart& part) {
  const int64_t statistics = part.has_statistics ? 1 : 0;
  return {.parameters = {{part.features}},
          .kept = {.wide_values = static_cast<double>(
                       part.tokens_between * (part.features + statistics)),
                   .until_weight_grad = part.StreamValues()}};
}

}  // namespace rankwise

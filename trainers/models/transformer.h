// Components of gpt, llama and vit, and the pre-norm transformer block of gpt
// and vit (Vaswani 2017, in the order of GPT-2, Radford 2019).
#ifndef RANKWISE_TRAINERS_MODELS_TRANSFORMER_H_
#define RANKWISE_TRAINERS_MODELS_TRANSFORMER_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainers/models/memory/layer_memory.h"
#include "trainers/models/model.h"

namespace rankwise {

struct TransformerSize {
  std::string name;
  int64_t depth = 0, width = 0, heads = 0;
  int64_t vocabulary = 0, sequence_length = 0;  // gpt only
};

// Checks the flags of ModelConfig that all transformers have. InvalidArgument,
// with the flag as typed.
absl::Status CheckTransformerFlags(const ModelConfig& config);

// Returns the size that `config` names, or the first of `sizes` if it names
// none, with the fields that `config` overrides. Another width keeps the width
// of a head. InvalidArgument, with the flag as typed.
absl::StatusOr<TransformerSize> ChooseSize(
    const ModelConfig& config, absl::Span<const TransformerSize> sizes);

// Standard deviation of GPT-2's initial weights; biases begin at 0.
inline constexpr double kInitialDeviation = 0.02;
// Returns the deviation of the weights that write to the residual stream of
// `depth` blocks.
double ResidualDeviation(int64_t depth);

struct LinearOptions {
  double deviation = kInitialDeviation;
  bool bias = true;
};

// y = x W^T + b, with W drawn from N(0, deviation^2) and b = 0. Parameters
// weight [outputs, inputs] and, if it has one, bias [outputs].
class Linear : public torch::nn::Module {
 public:
  Linear(int64_t inputs, int64_t outputs, const LinearOptions& options = {});
  torch::Tensor Forward(const torch::Tensor& x) const;
  const torch::Tensor& weight() const { return weight_; }
  const torch::Tensor& bias() const { return bias_; }

 private:
  torch::Tensor weight_, bias_;
};

// Divides the outputs of `linear` along tp, in blocks of these sizes.
void DivideColumns(const Linear& linear, std::vector<int64_t> blocks,
                   LayerContext& context);

// Divides the inputs of `linear` along tp. Its bias, if any, is not divided: it
// is added to the sum over the ranks, on each rank's tokens.
void DivideRows(const Linear& linear, LayerContext& context);

// One weight [rows, features], drawn from N(0, kInitialDeviation^2).
class Embedding : public torch::nn::Module {
 public:
  Embedding(int64_t rows, int64_t features);
  const torch::Tensor& weight() const { return weight_; }

 private:
  torch::Tensor weight_;
};

struct BlockConfig {
  SequenceShape sequence;  // of one example
  int64_t features = 0;    // a multiple of `heads`
  int64_t heads = 0;
  int64_t kv_heads = 0;  // key and value heads; divides `heads`
  ModelSplit split;
  double dropout = 0;  // of attention weights and of both sublayers' outputs
  double residual_deviation = kInitialDeviation;
};

// x + Attention(Norm(x)), then x + Mlp(Norm(x)); the MLP has 4 times the
// features and GELU (its tanh form, as in GPT-2). [B, tokens, features] to the
// same. FLOPs count all pairs of tokens, even if `sequence.causal` masks half
// of them (Chowdhery 2022, appendix B).
LayerSpec BlockLayer(const std::string& name, const BlockConfig& config);

// Returns the key and value heads that one rank along tp uses.
int64_t KvHeadsHere(const BlockConfig& config);

// Returns the numbers in `times` exchanges of an example's tokens along tp.
double ExchangesOfTokens(int times, const BlockConfig& config);

// Returns this rank's part of a transformer of such blocks.
TransformerPart TransformerPartOf(const BlockConfig& config);

// Returns a layer that normalises the tokens between layers (layer
// normalisation): [B, tokens, features] to the same.
LayerSpec NormLayer(const std::string& name, const BlockConfig& config);

// Checks `config.split`: tp must divide the heads, and cp support the sequence,
// the key and value heads and the dropout. InvalidArgument, with the flag as
// typed.
absl::Status CheckSplit(const BlockConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_TRANSFORMER_H_

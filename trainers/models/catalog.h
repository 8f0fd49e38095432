// Descriptions of the models; MakeModelSpec selects one by name.
#ifndef RANKWISE_TRAINERS_MODELS_CATALOG_H_
#define RANKWISE_TRAINERS_MODELS_CATALOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainers/models/model.h"

namespace rankwise {

// One linear layer, 10 -> 1: the smallest model that takes a DDP step. Input
// [B, 10]; output [B, 1].
absl::StatusOr<ModelSpec> LinearSpec(const ModelConfig& config);

// The small convolutional network for 32x32 colour images: two convolutions,
// two fully connected layers, 2.1 M parameters. Input [B, 3, 32, 32]; output
// logits [B, 10]. "simple_cnn_bn" has a BatchNorm2d between each convolution
// and its ReLU.
absl::StatusOr<ModelSpec> SimpleCnnSpec(const ModelConfig& config);

// A fully connected network for images. Input [B, 3, 32, 32], flattened; output
// logits [B, 10]. --depth hidden layers (default 2) of --width features
// (default 512) with ReLU: fc1 .. fcN, then the output layer. --input_width
// replaces images by vectors [B, input_width], --classes sets the number of
// outputs: with both equal to --width all layers are equal.
absl::StatusOr<ModelSpec> MlpSpec(const ModelConfig& config);

// The two-layer network of model parallelism tutorials: fc1 (1024 to 2048),
// relu, fc2 (2048 to 1024). Input and output [B, 1024].
absl::StatusOr<ModelSpec> MpMlpSpec(const ModelConfig& config);

// GPT-2 (Radford 2019): a decoder-only transformer that predicts the next
// token. Input tokens int64 [B, T]; output logits [B, T, vocabulary]. Sizes,
// with their parameters: nano (0.8 M; the default), micro (3.3 M), mini (10.8
// M), small (25.6 M), gpt2 (124 M, as published). All but gpt2 have a
// vocabulary of 256, for bytes. T is --sequence_length, also the length of the
// position embedding.
//
// Layers: embedding, block0 ..., norm, head. With a tied head the head is the
// token embedding (Press and Wolf 2017). Initial weights as GPT-2's: N(0,
// 0.02^2), those that write to the residual stream divided by sqrt(2 depth).
absl::StatusOr<ModelSpec> GptSpec(const ModelConfig& config);

// Llama (Touvron et al. 2023; Grattafiori et al. 2024) and Qwen3 (Yang et al.
// 2025): decoder-only transformers with RMS norms, rotary positions,
// grouped-query attention and SwiGLU, without biases. Input tokens int64 [B,
// T]; output logits [B, T, vocabulary]. Sizes, by number of parameters: nano
// (0.8 M; the default), mini (9.6 M), and as published llama3.2-1b (1.24 G),
// llama3.1-8b (8.03 G), llama3.1-70b (70.6 G), llama3.1-405b (406 G) and
// qwen3-0.6b (0.60 G), or any other by flags.
//
// Layers: embedding, block0 ..., norm, head. Initial weights as gpt's.
absl::StatusOr<ModelSpec> LlamaSpec(const ModelConfig& config);

// The vision transformer (Dosovitskiy 2020) for 32x32 colour images, in patches
// of 4x4. Input [B, 3, 32, 32]; output logits [B, 10]. Sizes: nano (4 blocks of
// 128 features; the default), micro (6 of 192), and of DeiT (Touvron 2021) tiny
// (12 of 192), small (12 of 384) and base (12 of 768).
//
// Layers: embedding (patches, class token, positions), block0 ..., norm (of the
// class token only), head. Initial weights N(0, 0.02^2); the class token is 0.
absl::StatusOr<ModelSpec> VitSpec(const ModelConfig& config);

// Returns InvalidArgument naming the flag unless `value` is in 0 .. most.
absl::Status CheckSizeFlag(const char* flag, int64_t value, int64_t most);

// Returns InvalidArgument: the model has no size `config.size`, but those
// named.
absl::Status UnknownSize(const ModelConfig& config,
                         const std::vector<std::string>& names);

// Returns the size that `config` names, or the first of `sizes` if it names
// none.
template <typename Size>
absl::StatusOr<Size> SizeNamedBy(const ModelConfig& config,
                                 absl::Span<const Size> sizes) {
  std::vector<std::string> names;
  for (const Size& size : sizes) {
    if (config.size.empty() || size.name == config.size) return size;
    names.push_back(size.name);
  }
  return UnknownSize(config, names);
}

// The largest --depth, and the largest --width and other feature counts.
inline constexpr int64_t kMostBlocks = 10'000;
inline constexpr int64_t kMostFeatures = 1 << 20;

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_CATALOG_H_

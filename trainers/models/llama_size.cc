#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"
#include "trainers/models/llama.h"
#include "trainers/models/transformer.h"

namespace rankwise {
namespace {

// Returns a Llama 3.1 (Grattafiori et al. 2024) or 3.2, extended by
// `rope_factor` to 128K tokens of context.
LlamaSize Llama3(const std::string& name, int64_t depth, int64_t width,
                 int64_t heads, int64_t ffn_width, double rope_factor) {
  return {.name = name,
          .depth = depth,
          .width = width,
          .heads = heads,
          .kv_heads = 8,
          .head_width = width / heads,
          .ffn_width = ffn_width,
          .vocabulary = 128'256,
          .sequence_length = 8192,
          .rope_scaling = RopeScaling{.factor = rope_factor,
                                      .low_frequency_factor = 1,
                                      .high_frequency_factor = 4,
                                      .original_tokens = 8192}};
}

LlamaSize Tied(LlamaSize size) {
  size.tied_head = true;
  return size;
}

const std::vector<LlamaSize>& Sizes() {
  static const auto* const kSizes = new std::vector<LlamaSize>{
      {"nano", /*depth=*/4, /*width=*/128, /*heads=*/4, /*kv_heads=*/2,
       /*head_width=*/32, /*ffn_width=*/352, /*vocabulary=*/256,
       /*sequence_length=*/128},
      {"mini", 6, 384, 6, 2, 64, 1024, 256, 256},
      Tied(Llama3("llama3.2-1b", 16, 2048, 32, 8192, /*rope_factor=*/32)),
      Llama3("llama3.1-8b", 32, 4096, 32, 14'336, 8),
      Llama3("llama3.1-70b", 80, 8192, 64, 28'672, 8),
      Llama3("llama3.1-405b", 126, 16'384, 128, 53'248, 8),
      {.name = "qwen3-0.6b",
       .depth = 28,
       .width = 1024,
       .heads = 16,
       .kv_heads = 8,
       .head_width = 128,
       .ffn_width = 3072,
       .vocabulary = 151'936,
       .sequence_length = 4096,
       .tied_head = true,
       .qk_norm = true,
       .norm_epsilon = 1e-6,
       .rope_theta = 1'000'000},
  };
  return *kSizes;
}

absl::Status CheckFlags(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckTransformerFlags(config));
  for (const auto& [flag, value] : {std::pair{"heads", config.heads},
                                    std::pair{"kv_heads", config.kv_heads},
                                    std::pair{"head_width", config.head_width},
                                    std::pair{"ffn_width", config.ffn_width}}) {
    RETURN_IF_ERROR(CheckSizeFlag(flag, value, kMostFeatures));
  }
  for (const auto& [flag, value] :
       {std::pair{"norm_epsilon", config.norm_epsilon},
        std::pair{"rope_theta", config.rope_theta}}) {
    if (value >= 0 && value <= 1e12) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", value,
                     ": must be positive, or 0 for the model's own"));
  }
  return absl::OkStatus();
}

absl::Status SetHeads(const ModelConfig& config, LlamaSize& size) {
  const int64_t width = config.width > 0 ? config.width : size.width;
  if (config.head_width > 0) {
    size.head_width = config.head_width;
  } else if (config.heads > 0 && width % config.heads == 0) {
    size.head_width = width / config.heads;
  }
  if (config.heads > 0) {
    size.heads = config.heads;
  } else if (config.width > 0) {
    if (width % size.head_width != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--width=", width, ": must be a multiple of ", size.head_width,
          ", the width of an attention head of --model_size=", size.name,
          "; or give --heads"));
    }
    size.heads = width / size.head_width;
  }
  if (size.head_width % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--head_width=", size.head_width,
                     ": must be even, as rotary positions turn pairs"));
  }
  if (config.kv_heads > 0) size.kv_heads = config.kv_heads;
  if (size.heads % size.kv_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--kv_heads=", size.kv_heads, ": must divide the ",
                   size.heads, " attention heads"));
}

}  // namespace

absl::StatusOr<LlamaSize> ChooseLlamaSize(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckFlags(config));
  ASSIGN_OR_RETURN(LlamaSize size, SizeNamedBy<LlamaSize>(config, Sizes()));
  RETURN_IF_ERROR(SetHeads(config, size));
  const auto override = [](auto value, auto& field) {
    if (value > 0) field = value;
  };
  if (config.width > 0 && config.ffn_width == 0) {
    constexpr int64_t kMultiple = 32;
    size.ffn_width =
        (size.ffn_width * config.width / size.width + kMultiple - 1) /
        kMultiple * kMultiple;
  }
  override(config.depth, size.depth);
  override(config.width, size.width);
  override(config.ffn_width, size.ffn_width);
  override(config.vocabulary, size.vocabulary);
  override(config.sequence_length, size.sequence_length);
  override(config.norm_epsilon, size.norm_epsilon);
  override(config.rope_theta, size.rope_theta);
  size.tied_head = config.tied_head.value_or(size.tied_head);
  size.qk_norm = config.qk_norm.value_or(size.qk_norm);
  if (config.rope_scaling.has_value()) size.rope_scaling = config.rope_scaling;
  return size;
}

}  // namespace rankwise

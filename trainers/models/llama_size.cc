#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/absl/status_macros.h"
#include "trainers/models/catalog.h"
#include "trainers/models/llama.h"

namespace rankwise {
namespace {

// Returns the scaling of Llama 3.1 (Grattafiori et al. 2024) and 3.2, for 128K
// tokens of context.
constexpr RopeScaling Scaling(double factor) {
  return {.factor = factor,
          .low_frequency_factor = 1,
          .high_frequency_factor = 4,
          .original_tokens = 8192};
}

const std::vector<LlamaSize>& Sizes() {
  static const auto* const kSizes = new std::vector<LlamaSize>{
      {"nano", /*depth=*/4, /*width=*/128, /*heads=*/4, /*kv_heads=*/2,
       /*head_width=*/32, /*ffn_width=*/352, /*vocabulary=*/256,
       /*sequence_length=*/128},
      {"mini", 6, 384, 6, 2, 64, 1024, 256, 256},
      {.name = "llama3.2-1b",
       .depth = 16,
       .width = 2048,
       .heads = 32,
       .kv_heads = 8,
       .head_width = 64,
       .ffn_width = 8192,
       .vocabulary = 128'256,
       .sequence_length = 8192,
       .tied_head = true,
       .rope_scaling = Scaling(32)},
      {.name = "llama3.1-8b",
       .depth = 32,
       .width = 4096,
       .heads = 32,
       .kv_heads = 8,
       .head_width = 128,
       .ffn_width = 14'336,
       .vocabulary = 128'256,
       .sequence_length = 8192,
       .rope_scaling = Scaling(8)},
      {.name = "llama3.1-70b",
       .depth = 80,
       .width = 8192,
       .heads = 64,
       .kv_heads = 8,
       .head_width = 128,
       .ffn_width = 28'672,
       .vocabulary = 128'256,
       .sequence_length = 8192,
       .rope_scaling = Scaling(8)},
      {.name = "llama3.1-405b",
       .depth = 126,
       .width = 16'384,
       .heads = 128,
       .kv_heads = 8,
       .head_width = 128,
       .ffn_width = 53'248,
       .vocabulary = 128'256,
       .sequence_length = 8192,
       .rope_scaling = Scaling(8)},
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

absl::StatusOr<LlamaSize> Named(const std::string& name) {
  if (name.empty()) return Sizes().front();
  std::vector<std::string> names;
  for (const LlamaSize& size : Sizes()) {
    if (size.name == name) return size;
    names.push_back(size.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--model_size=", name, ": --model=llama has no such size; ",
                   "it has ", absl::StrJoin(names, ", ")));
}

absl::Status CheckFlags(const ModelConfig& config) {
  RETURN_IF_ERROR(CheckSizeFlag("depth", config.depth, kMostBlocks));
  for (const auto& [flag, value] :
       {std::pair{"width", config.width}, std::pair{"heads", config.heads},
        std::pair{"kv_heads", config.kv_heads},
        std::pair{"head_width", config.head_width},
        std::pair{"ffn_width", config.ffn_width},
        std::pair{"vocabulary", config.vocabulary},
        std::pair{"sequence_length", config.sequence_length}}) {
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
  ASSIGN_OR_RETURN(LlamaSize size, Named(config.size));
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

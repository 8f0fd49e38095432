#include "trainers/models/sizes.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace rankwise {
namespace {

constexpr int64_t kMostBlocks = 10'000;
constexpr int64_t kMostFeatures = 1 << 20;

absl::StatusOr<TransformerSize> Named(const ModelConfig& config,
                                      absl::Span<const TransformerSize> sizes) {
  if (config.size.empty()) return sizes.front();
  std::vector<std::string> names;
  for (const TransformerSize& size : sizes) {
    if (size.name == config.size) return size;
    names.push_back(size.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--model_size=", config.size, ": --model=", config.name,
                   " has no such size; it has ", absl::StrJoin(names, ", ")));
}

absl::Status CheckFlags(const ModelConfig& config) {
  absl::Status status = CheckSizeFlag("depth", config.depth, kMostBlocks);
  if (status.ok()) status = CheckSizeFlag("width", config.width, kMostFeatures);
  if (status.ok()) {
    status =
        CheckSizeFlag("sequence_length", config.sequence_length, kMostFeatures);
  }
  if (status.ok() && !(config.dropout >= 0 && config.dropout < 1)) {
    status = absl::InvalidArgumentError(absl::StrCat(
        "--dropout=", config.dropout, ": must be at least 0 and less than 1"));
  }
  return status;
}

}  // namespace

absl::Status CheckSizeFlag(const char* flag, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value, ": must be between 1 and ", most,
                   ", or 0 for the model's own"));
}

absl::StatusOr<TransformerSize> ChooseSize(
    const ModelConfig& config, absl::Span<const TransformerSize> sizes) {
  absl::Status status = CheckFlags(config);
  if (!status.ok()) return status;
  absl::StatusOr<TransformerSize> size = Named(config, sizes);
  if (!size.ok()) return size;
  if (config.depth > 0) size->depth = config.depth;
  if (config.sequence_length > 0)
    size->sequence_length = config.sequence_length;
  if (config.width > 0) {
    const int64_t head_width = size->width / size->heads;
    if (config.width % head_width != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--width=", config.width, ": must be a multiple of ", head_width,
          ", the width of an attention head of --model_size=", size->name));
    }
    size->width = config.width;
    size->heads = config.width / head_width;
  }
  return size;
}

}  // namespace rankwise

// The named sizes of the transformer models, and what a configuration makes of
// them.
#ifndef RANKWISE_TRAINERS_MODELS_SIZES_H_
#define RANKWISE_TRAINERS_MODELS_SIZES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainers/models/model_config.h"

namespace rankwise {

struct TransformerSize {
  std::string name;
  int64_t depth = 0, width = 0, heads = 0;
  int64_t vocabulary = 0, sequence_length = 0;  // gpt only
};

// The size that `config` names, the first of `sizes` if none, with the fields
// that `config` overrides. Another width keeps the width of a head.
// InvalidArgument as the flag is typed.
absl::StatusOr<TransformerSize> ChooseSize(
    const ModelConfig& config, absl::Span<const TransformerSize> sizes);

// InvalidArgument that names the flag unless 0 (the default) or in 1 .. most.
absl::Status CheckSizeFlag(const char* flag, int64_t value, int64_t most);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_SIZES_H_

// The dimensions of our model `llama` as those of Hugging Face's config.json.
#ifndef RANKWISE_TRAINERS_HUGGINGFACE_MODEL_CONFIG_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_MODEL_CONFIG_H_

#include "absl/status/statusor.h"
#include "trainers/huggingface/config_file.h"
#include "trainers/models/model.h"

namespace rankwise {

// Sets the fields of `model`, a llama without a size's name, that are unset (0
// or empty) to the values in `file`. An example has as many tokens as the file
// has positions, but at most 8,192.
void FillModelConfig(const HuggingFaceConfig& file, ModelConfig& model);

// Returns the dimensions of a llama. InvalidArgument as from ChooseLlamaSize.
absl::StatusOr<HuggingFaceConfig> HuggingFaceConfigOf(const ModelConfig& model);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_MODEL_CONFIG_H_

// The parameters of our model `llama` in Hugging Face's files, which divide
// some of them into several tensors.
#ifndef RANKWISE_TRAINERS_HUGGINGFACE_TENSOR_NAMES_H_
#define RANKWISE_TRAINERS_HUGGINGFACE_TENSOR_NAMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/safetensors.h"
#include "trainers/huggingface/config_file.h"

namespace rankwise {

// Rows [first_row, first_row + shape[0]) of a parameter.
struct HuggingFaceTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t first_row = 0;
};

struct HuggingFaceParameter {
  std::vector<int64_t> shape;
  std::vector<HuggingFaceTensor> tensors;  // cover all rows, in order
};

// Returns the parameters by name ("block0.attention.qkv.weight").
std::map<std::string, HuggingFaceParameter> HuggingFaceParameters(
    const HuggingFaceConfig& config);

// Converts sources of whole parameters, or of some of them, to Hugging Face's
// names and `type`, and sets their offsets. The values of each of `whole` are
// requested once, in the order of `whole`, if those of the result are requested
// once and in order. Internal if a parameter is not one of the model's.
absl::StatusOr<std::vector<TensorSource>> ToHuggingFace(
    std::vector<TensorSource> whole, const HuggingFaceConfig& config,
    torch::ScalarType type);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_HUGGINGFACE_TENSOR_NAMES_H_

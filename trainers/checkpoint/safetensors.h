// Tensors in safetensors files, which Python's `safetensors.torch.load_file`
// reads and writes too.
#ifndef RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_
#define RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/safetensors_header.h"

namespace rankwise {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;
};

// Writes `tensors` (any device, any strides; F32 F64 F16 BF16 I64 I32 U8 BOOL)
// to `path`, whole or not at all (see DurableFile). Blocks until they are on
// the disk. Conventional metadata: {"format", "pt"}.
//
//   SaveSafetensors("model.safetensors", {{"fc.weight", weight}, {"fc.bias",
//   bias}}, {{"format", "pt"}});
absl::Status SaveSafetensors(
    const std::string& path, const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata = {});

// Reads every tensor of `path` to the CPU, contiguous. A file that is not
// exactly a safetensors file is refused as DataLoss, with a message that names
// the file and the byte.
absl::StatusOr<SafetensorsContents> LoadSafetensors(const std::string& path);

// The names, types and shapes only; the data are not read, but their size is
// checked.
absl::StatusOr<SafetensorsHeader> LoadSafetensorsHeader(
    const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_

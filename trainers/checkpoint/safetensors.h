// Tensors in safetensors files, which Python's `safetensors.torch.load_file`
// reads and writes too (https://github.com/huggingface/safetensors, "Format"):
//
//   file    = length header data
//   length  = the header's size in bytes, unsigned, 8 bytes, little endian
//   header  = JSON object, padded with spaces to a multiple of 8 bytes:
//             { "__metadata__": { STRING: STRING, ... },
//               NAME: { "dtype": DTYPE, "shape": [INT, ...], "data_offsets":
//               [BEGIN, END] }, ... }
//   data    = the tensors' bytes, row-major, without holes; offsets count from
//             the end of the header
#ifndef RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_
#define RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"

namespace rankwise {

struct TensorEntry {
  std::string name;
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape;
  int64_t begin = 0;  // bytes from the start of the data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorEntry> entries;  // in the order of their data
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;
  bool header_only = false;  // no tensor was needed
};

// `tensors` as a file holds them: on the CPU and contiguous (copied only if
// they are not), in the order of Python's writer: wider types first, then by
// name, so that every tensor is aligned. InvalidArgument for a tensor that is
// not dense, or whose type has no name in the format.
absl::StatusOr<NamedTensors> InFileOrder(const NamedTensors& tensors);

// Writes `tensors` (any device, any strides; F32 F64 F16 BF16 I64 I32 U8 BOOL)
// to `path`, as ReplaceFile does. InvalidArgument as InFileOrder, and for a
// name used twice or text that is not UTF-8. Conventional metadata: {"format",
// "pt"}.
//
//   SaveSafetensors("model.safetensors", {{"fc.weight", weight}, {"fc.bias",
//   bias}}, {{"format", "pt"}});
absl::Status SaveSafetensors(
    const std::string& path, const NamedTensors& tensors,
    const std::map<std::string, std::string>& metadata = {});

// Reads every tensor of `path` to the CPU, contiguous. With names in `needed`,
// of a file that holds none of them only the header is read. DataLoss, with the
// file and the byte, for what is not exactly a safetensors file.
absl::StatusOr<SafetensorsContents> LoadSafetensors(
    const std::string& path, const std::set<std::string>& needed = {});

// The names, types and shapes only; the data are not read, but their size is
// checked.
absl::StatusOr<SafetensorsHeader> LoadSafetensorsHeader(
    const std::string& path);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_

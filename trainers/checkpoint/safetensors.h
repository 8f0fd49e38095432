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
#include "absl/strings/string_view.h"
#include "torch/types.h"

namespace rankwise {

// Bytes of the length field that opens the file.
inline constexpr int64_t kLengthBytes = 8;

// Python's reader refuses longer headers too.
inline constexpr int64_t kLargestHeaderBytes = 100'000'000;

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

// Sorts the entries as Python's writer does (wider types first, then by name,
// so that every tensor is aligned) and sets their offsets. Errors: a type that
// the format has no name for; a name used twice.
absl::Status LayOut(std::vector<TensorEntry>& entries);

// The length and the header, ready to be written. Errors: text that is not
// UTF-8.
absl::StatusOr<std::string> EncodeHeader(const SafetensorsHeader& header);

// Parses the JSON text that follows the length in a file with `data_bytes`
// bytes after the header. The returned entries cover these bytes exactly.
// Errors name the byte of the file where they were found.
absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view text,
                                              int64_t data_bytes);

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;  // in the order of their bytes in the file
  std::map<std::string, std::string> metadata;
  bool header_only = false;  // no tensor was needed
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

// Tensors in safetensors files, which are compatible with Python's
// `safetensors.torch` (https://github.com/huggingface/safetensors, "Format"):
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
#include <functional>
#include <map>
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

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  SafetensorsMetadata metadata;
  std::vector<TensorEntry> entries;  // in the order of their data
  int64_t data_begin = 0;            // bytes of the file before the data
};

// A header as stored in the file, unchecked.
struct SafetensorsHeaderText {
  std::string json;
  int64_t data_bytes = 0;  // size of the data after the header
};

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

struct SafetensorsContents {
  NamedTensors tensors;  // in the order of their bytes in the file
  SafetensorsMetadata metadata;
};

// A tensor to be written: its header entry, and a function that returns its
// values (any device, any strides), called when they are written, so that only
// one tensor at a time is in memory.
struct TensorSource {
  TensorEntry entry;
  std::function<torch::Tensor()> values;
};

// Returns a source of `tensor`; InvalidArgument if it is not dense.
absl::StatusOr<TensorSource> SourceOf(const std::string& name,
                                      const torch::Tensor& tensor);

// Sorts the sources in the order of Python's writer, wider types first, then by
// name, so that every tensor is aligned, and sets their offsets in the data.
// InvalidArgument for a type that the format lacks (it has F32 F64 F16 BF16 I64
// I32 U8 BOOL).
absl::Status AssignOffsets(std::vector<TensorSource>& sources);

// Sets the offsets in the given order, in which no tensor may have a wider type
// than the one before it.
absl::Status SetOffsets(std::vector<TensorSource>& sources);

// Writes `sources`, whose offsets are set, to `path`, as ReplaceFile does.
// InvalidArgument for a repeated name or text that is not UTF-8. Conventional
// metadata: {"format", "pt"}. If given, `complete` is called after all values
// are written, and its result, of equal length, replaces `metadata`.
absl::Status WriteSafetensors(
    const std::string& path, const std::vector<TensorSource>& sources,
    const SafetensorsMetadata& metadata,
    const std::function<SafetensorsMetadata()>& complete = nullptr);

// Does the same for existing tensors, in any order.
//
//   SaveSafetensors("model.safetensors", {{"fc.weight", weight}, {"fc.bias",
//   bias}}, {{"format", "pt"}});
absl::Status SaveSafetensors(const std::string& path,
                             const NamedTensors& tensors,
                             const SafetensorsMetadata& metadata = {});

// Reads every tensor of `path` to the CPU, contiguous. DataLoss, with the file
// and the byte, if it is not a valid safetensors file.
absl::StatusOr<SafetensorsContents> LoadSafetensors(const std::string& path);

// Reads names, types and shapes, and checks the size of the unread data.
absl::StatusOr<SafetensorsHeader> LoadSafetensorsHeader(
    const std::string& path);

// Do the same in two steps; the second does not open `path`.
absl::StatusOr<SafetensorsHeaderText> LoadSafetensorsHeaderText(
    const std::string& path);
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& path, const SafetensorsHeaderText& text);

// Returns bytes [begin, end) of the data of `path` as uint8.
absl::StatusOr<torch::Tensor> LoadSafetensorsBytes(
    const std::string& path, const SafetensorsHeader& header, int64_t begin,
    int64_t end);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_H_

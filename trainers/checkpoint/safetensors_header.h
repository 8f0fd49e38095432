// The header of a safetensors file (https://github.com/huggingface/safetensors,
// "Format"):
//
//   file    = length header data
//   length  = the header's size in bytes, unsigned, 8 bytes, little endian
//   header  = JSON object, padded with spaces to a multiple of 8 bytes:
//             { "__metadata__": { STRING: STRING, ... },
//               NAME: { "dtype": DTYPE, "shape": [INT, ...], "data_offsets":
//               [BEGIN, END] }, ... }
//   data    = the tensors' bytes, row-major, without holes; offsets count from
//   the end of the header
#ifndef RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_HEADER_H_
#define RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "c10/core/ScalarType.h"

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

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_CHECKPOINT_SAFETENSORS_HEADER_H_

#include "trainers/checkpoint/safetensors.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <ostream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "nlohmann/json.hpp"
#include "records/replace_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;
// For reading: when an object grows, ordered_json copies its contents
// recursively, which overflows the stack for deeply nested files.
using ReadJson = nlohmann::json;

// Size of the length field at the start of the file.
constexpr int64_t kLengthBytes = 8;
// Python's reader refuses longer headers too.
constexpr int64_t kLargestHeaderBytes = 100'000'000;

// The most that PyTorch's operators accept.
constexpr size_t kMostDimensions = 64;

constexpr char kMetadataKey[] = "__metadata__";

struct NamedType {
  const char* name;
  c10::ScalarType type;
};

// In the order of Python's writer.
constexpr NamedType kTypes[] = {
    {"I64", c10::ScalarType::Long},      {"F64", c10::ScalarType::Double},
    {"F32", c10::ScalarType::Float},     {"I32", c10::ScalarType::Int},
    {"BF16", c10::ScalarType::BFloat16}, {"F16", c10::ScalarType::Half},
    {"U8", c10::ScalarType::Byte},       {"BOOL", c10::ScalarType::Bool},
};

// Find by `type` or by name; return nullptr for types that the format lacks.
const NamedType* FindType(c10::ScalarType type) {
  const auto* found = absl::c_find_if(
      kTypes, [&](const NamedType& known) { return known.type == type; });
  return found == std::end(kTypes) ? nullptr : found;
}

const NamedType* FindType(absl::string_view name) {
  const auto* found = absl::c_find_if(
      kTypes, [&](const NamedType& known) { return known.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

// Shortens and escapes a text of the header for messages.
std::string Named(absl::string_view text) {
  constexpr size_t kLongest = 200;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)), "'");
}

// Returns the bytes of `entry`'s data; nullopt if the number overflows.
std::optional<int64_t> SizeBytes(const TensorEntry& entry) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

// Parses a list of whole numbers from 0 that fit into int64.
std::optional<std::vector<int64_t>> ParseNumbers(const ReadJson& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const ReadJson& item : json) {
    if (!item.is_number_unsigned()) return std::nullopt;
    const uint64_t number = item.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

// Parses the JSON text that follows the length in a file with `data_bytes`
// bytes after the header, which the entries cover exactly.
class HeaderParser {
 public:
  HeaderParser(absl::string_view text, int64_t data_bytes)
      : text_(text), data_bytes_(data_bytes) {}

  absl::StatusOr<SafetensorsHeader> Parse() {
    ReadJson json;
    try {
      json = ReadJson::parse(text_.begin(), text_.end());
    } catch (const ReadJson::parse_error& error) {
      const int64_t byte =
          std::max<int64_t>(static_cast<int64_t>(error.byte) - 1, 0);
      return ErrorAt(kLengthBytes + byte, "the header is not JSON");
    } catch (const ReadJson::out_of_range&) {
      return ErrorAt(kLengthBytes, "a number of the header is too large");
    }
    if (!json.is_object())
      return ErrorAt(kLengthBytes, "the header is not a JSON object");
    for (const auto& [name, value] : json.items()) {
      RETURN_IF_ERROR(name == kMetadataKey ? ParseMetadata(value)
                                           : ParseEntry(name, value));
    }
    RETURN_IF_ERROR(CheckCoverage());
    return std::move(header_);
  }

 private:
  static absl::Status ErrorAt(int64_t byte, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("at byte ", byte, ": ", what));
  }

  // Returns an error about the entry `name`, at its position in the file.
  absl::Status EntryError(const std::string& name,
                          absl::string_view what) const {
    const size_t found = text_.find(ReadJson(name).dump());
    const size_t in_header = found == absl::string_view::npos ? 0 : found;
    return ErrorAt(kLengthBytes + static_cast<int64_t>(in_header),
                   absl::StrCat("tensor ", Named(name), ": ", what));
  }

  absl::Status ParseMetadata(const ReadJson& value) {
    try {
      header_.metadata = value.get<std::map<std::string, std::string>>();
    } catch (const ReadJson::type_error&) {
      return EntryError(kMetadataKey, "is not an object of strings");
    }
    return absl::OkStatus();
  }

  absl::Status ParseEntry(const std::string& name, const ReadJson& value) {
    if (!value.is_object() || !value.contains("dtype") ||
        !value["dtype"].is_string() || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      return EntryError(name,
                        "is not an object with dtype, shape and data_offsets");
    }
    const std::string dtype = value["dtype"].get<std::string>();
    const NamedType* type = FindType(dtype);
    if (type == nullptr)
      return EntryError(name, absl::StrCat("unknown dtype ", Named(dtype)));
    const auto shape = ParseNumbers(value["shape"]);
    if (!shape)
      return EntryError(name, "the shape is not a list of whole numbers");
    if (shape->size() > kMostDimensions) {
      return EntryError(name, absl::StrCat("the shape has ", shape->size(),
                                           " dimensions; at most ",
                                           kMostDimensions, " are read"));
    }
    const auto offsets = ParseNumbers(value["data_offsets"]);
    if (!offsets || offsets->size() != 2) {
      return EntryError(name, "data_offsets is not a pair of whole numbers");
    }
    header_.entries.push_back(
        {name, type->type, *shape, (*offsets)[0], (*offsets)[1]});
    return CheckEntry(header_.entries.back());
  }

  absl::Status CheckEntry(const TensorEntry& entry) const {
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      return EntryError(entry.name,
                        absl::StrCat("data_offsets [", entry.begin, ", ",
                                     entry.end, "] are outside the file's ",
                                     data_bytes_, " data bytes"));
    }
    const std::optional<int64_t> needed = SizeBytes(entry);
    if (needed == entry.end - entry.begin) return absl::OkStatus();
    return EntryError(
        entry.name,
        absl::StrCat("shape [", absl::StrJoin(entry.shape, ", "), "] of ",
                     FindType(entry.dtype)->name, " needs ",
                     needed ? absl::StrCat(*needed) : std::string("too many"),
                     " bytes but data_offsets hold ", entry.end - entry.begin));
  }

  // Checks that every data byte belongs to exactly one tensor. Sorts the
  // entries by position in the file.
  absl::Status CheckCoverage() {
    std::vector<TensorEntry>& entries = header_.entries;
    absl::c_sort(entries, [](const auto& a, const auto& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    const int64_t data_start =
        kLengthBytes + static_cast<int64_t>(text_.size());
    int64_t covered = 0;
    for (const TensorEntry& entry : entries) {
      if (entry.begin != covered) {
        return ErrorAt(
            data_start + std::min(entry.begin, covered),
            absl::StrCat("tensor ", Named(entry.name), " ",
                         entry.begin < covered ? "overlaps the tensor before it"
                                               : "leaves a hole before it"));
      }
      covered = entry.end;
    }
    if (covered == data_bytes_) return absl::OkStatus();
    return ErrorAt(
        data_start + covered,
        absl::StrCat(data_bytes_ - covered, " bytes belong to no tensor"));
  }

  const absl::string_view text_;
  const int64_t data_bytes_;
  SafetensorsHeader header_;
};

absl::Status Explain(const absl::Status& status, absl::string_view attempted,
                     const std::string& path) {
  return absl::Status(
      status.code(),
      absl::StrCat("cannot ", attempted, " ", path, ": ", status.message()));
}

// Returns the length and the header, ready to be written.
absl::StatusOr<std::string> EncodeHeader(
    const std::vector<TensorSource>& sources,
    const SafetensorsMetadata& metadata) {
  Json json = Json::object();
  if (!metadata.empty()) json[kMetadataKey] = metadata;
  for (const auto& [entry, values] : sources) {
    if (entry.name == kMetadataKey || json.contains(entry.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the tensor name '", entry.name, "' is taken: names must be unique"));
    }
    json[entry.name] = {{"dtype", FindType(entry.dtype)->name},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text;
  try {
    text = json.dump();
  } catch (const Json::type_error&) {
    return absl::InvalidArgumentError(
        "a tensor's name or the metadata is not UTF-8 text");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  // Little endian, like all machines that LibTorch runs on.
  const uint64_t length = text.size();
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, sizeof(length));
  return encoded + text;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(
    const SafetensorsHeaderText& text) {
  ASSIGN_OR_RETURN(SafetensorsHeader header,
                   HeaderParser(text.json, text.data_bytes).Parse());
  header.data_begin = kLengthBytes + static_cast<int64_t>(text.json.size());
  return header;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : in_(path, std::ios::binary) {
    std::error_code error;
    if (!in_ || std::filesystem::is_directory(path, error)) {
      status_ = absl::ErrnoToStatus(in_ ? EISDIR : errno, "cannot open it");
      return;
    }
    size_bytes_ = static_cast<int64_t>(std::filesystem::file_size(path, error));
    if (error)
      status_ =
          absl::UnknownError(absl::StrCat("cannot size it: ", error.message()));
  }

  absl::StatusOr<SafetensorsContents> Read() {
    ASSIGN_OR_RETURN(const SafetensorsHeaderText text, ReadHeaderText());
    ASSIGN_OR_RETURN(SafetensorsHeader header, ParseHeader(text));
    SafetensorsContents contents = {{}, std::move(header.metadata)};
    for (const TensorEntry& entry : header.entries) {
      torch::Tensor tensor =
          torch::empty(entry.shape, torch::dtype(entry.dtype));
      RETURN_IF_ERROR(
          ReadBytes(tensor.mutable_data_ptr(), entry.end - entry.begin));
      contents.tensors.emplace_back(entry.name, std::move(tensor));
    }
    return contents;
  }

  // Returns bytes [begin, end) of the file.
  absl::StatusOr<torch::Tensor> ReadRange(int64_t begin, int64_t end) {
    RETURN_IF_ERROR(status_);
    in_.seekg(begin);
    read_bytes_ = begin;
    torch::Tensor bytes = torch::empty({end - begin}, torch::kByte);
    RETURN_IF_ERROR(ReadBytes(bytes.mutable_data_ptr(), end - begin));
    return bytes;
  }

  absl::StatusOr<SafetensorsHeaderText> ReadHeaderText() {
    RETURN_IF_ERROR(status_);
    uint64_t length = 0;
    RETURN_IF_ERROR(ReadBytes(&length, kLengthBytes));
    const uint64_t rest = static_cast<uint64_t>(size_bytes_ - kLengthBytes);
    if (length > rest || length > kLargestHeaderBytes) {
      return absl::DataLossError(absl::StrCat("at byte 0: a header of ", length,
                                              " bytes is announced, but ", rest,
                                              " bytes follow"));
    }
    SafetensorsHeaderText text = {std::string(length, '\0'),
                                  static_cast<int64_t>(rest - length)};
    RETURN_IF_ERROR(ReadBytes(text.json.data(), static_cast<int64_t>(length)));
    return text;
  }

 private:
  absl::Status ReadBytes(void* destination, int64_t size_bytes) {
    in_.read(static_cast<char*>(destination), size_bytes);
    read_bytes_ += in_.gcount();
    if (in_.gcount() == size_bytes) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("at byte ", read_bytes_, ": the file ends, ",
                     size_bytes - in_.gcount(), " bytes short"));
  }

  std::ifstream in_;
  absl::Status status_;  // result of opening the file
  int64_t size_bytes_ = 0;
  int64_t read_bytes_ = 0;
};

}  // namespace

absl::StatusOr<TensorSource> SourceOf(const std::string& name,
                                      const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != torch::kStrided) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor '", name, "' is not a dense tensor"));
  }
  return TensorSource{{name, tensor.scalar_type(), tensor.sizes().vec()},
                      [tensor] { return tensor; }};
}

absl::Status AssignOffsets(std::vector<TensorSource>& sources) {
  absl::c_sort(sources, [](const TensorSource& a, const TensorSource& b) {
    return std::pair(FindType(a.entry.dtype), a.entry.name) <
           std::pair(FindType(b.entry.dtype), b.entry.name);
  });
  return SetOffsets(sources);
}

absl::Status SetOffsets(std::vector<TensorSource>& sources) {
  for (const auto& [entry, values] : sources) {
    if (FindType(entry.dtype) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", entry.name, "' has type ", c10::toString(entry.dtype),
          ", which safetensors files cannot hold here"));
    }
  }
  int64_t offset = 0;
  for (auto& [entry, values] : sources) {
    const std::optional<int64_t> bytes = SizeBytes(entry);
    if (!bytes || __builtin_add_overflow(offset, *bytes, &entry.end)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor '", entry.name, "' has too many bytes"));
    }
    entry.begin = std::exchange(offset, entry.end);
  }
  return absl::OkStatus();
}

absl::Status WriteSafetensors(
    const std::string& path, const std::vector<TensorSource>& sources,
    const SafetensorsMetadata& metadata,
    const std::function<SafetensorsMetadata()>& complete) {
  const auto header = EncodeHeader(sources, metadata);
  if (!header.ok()) return Explain(header.status(), "save", path);
  return ReplaceFile(path, [&](std::ostream& out) {
    out << *header;
    for (const auto& [entry, values] : sources) {
      const torch::Tensor tensor = values().detach().cpu().contiguous();
      TORCH_CHECK(tensor.scalar_type() == entry.dtype &&
                      tensor.sizes() == at::IntArrayRef(entry.shape),
                  "tensor ", entry.name, " is not what was announced");
      out.write(static_cast<const char*>(tensor.const_data_ptr()),
                static_cast<std::streamsize>(tensor.nbytes()));
    }
    if (complete == nullptr) return;
    const auto completed = EncodeHeader(sources, complete());
    TORCH_CHECK(completed.ok() && completed->size() == header->size(),
                "the metadata of ", path, " changed its length");
    out.seekp(0);
    out << *completed;
  });
}

absl::Status SaveSafetensors(const std::string& path,
                             const NamedTensors& tensors,
                             const SafetensorsMetadata& metadata) {
  std::vector<TensorSource> sources;
  for (const auto& [name, tensor] : tensors) {
    auto source = SourceOf(name, tensor);
    if (!source.ok()) return Explain(source.status(), "save", path);
    sources.push_back(*std::move(source));
  }
  const absl::Status laid_out = AssignOffsets(sources);
  if (!laid_out.ok()) return Explain(laid_out, "save", path);
  return WriteSafetensors(path, sources, metadata);
}

absl::StatusOr<SafetensorsContents> LoadSafetensors(const std::string& path) {
  auto contents = Reader(path).Read();
  if (!contents.ok())
    return Explain(contents.status(), "read safetensors file", path);
  return contents;
}

absl::StatusOr<SafetensorsHeader> LoadSafetensorsHeader(
    const std::string& path) {
  ASSIGN_OR_RETURN(const SafetensorsHeaderText text,
                   LoadSafetensorsHeaderText(path));
  return ParseSafetensorsHeader(path, text);
}

absl::StatusOr<SafetensorsHeaderText> LoadSafetensorsHeaderText(
    const std::string& path) {
  auto text = Reader(path).ReadHeaderText();
  if (!text.ok()) return Explain(text.status(), "read safetensors file", path);
  return text;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(
    const std::string& path, const SafetensorsHeaderText& text) {
  auto header = ParseHeader(text);
  if (!header.ok())
    return Explain(header.status(), "read safetensors file", path);
  return header;
}

absl::StatusOr<torch::Tensor> LoadSafetensorsBytes(
    const std::string& path, const SafetensorsHeader& header, int64_t begin,
    int64_t end) {
  auto bytes = Reader(path).ReadRange(header.data_begin + begin,
                                      header.data_begin + end);
  if (!bytes.ok())
    return Explain(bytes.status(), "read safetensors file", path);
  return bytes;
}

}  // namespace rankwise

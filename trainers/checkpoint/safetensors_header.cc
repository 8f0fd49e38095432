#include "trainers/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

namespace rankwise {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kMetadataKey[] = "__metadata__";

struct NamedType {
  const char* name;
  c10::ScalarType type;
};

// In the order in which Python's writer lays tensors out.
constexpr NamedType kTypes[] = {
    {"I64", c10::ScalarType::Long},      {"F64", c10::ScalarType::Double},
    {"F32", c10::ScalarType::Float},     {"I32", c10::ScalarType::Int},
    {"BF16", c10::ScalarType::BFloat16}, {"F16", c10::ScalarType::Half},
    {"U8", c10::ScalarType::Byte},       {"BOOL", c10::ScalarType::Bool},
};

const NamedType* FindType(c10::ScalarType type) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const NamedType& t) { return t.type == type; });
  return found == std::end(kTypes) ? nullptr : found;
}

const NamedType* FindType(absl::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const NamedType& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

// Bytes of the data of `entry`; nullopt when the number does not fit.
std::optional<int64_t> SizeBytes(const TensorEntry& entry) {
  int64_t bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  for (const int64_t dimension : entry.shape) {
    if (__builtin_mul_overflow(bytes, dimension, &bytes)) return std::nullopt;
  }
  return bytes;
}

// A list of whole numbers from 0, each fitting int64.
std::optional<std::vector<int64_t>> ParseNumbers(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& item : json) {
    if (!item.is_number_unsigned()) return std::nullopt;
    const uint64_t number = item.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

class HeaderParser {
 public:
  HeaderParser(absl::string_view text, int64_t data_bytes)
      : text_(text), data_bytes_(data_bytes) {}

  absl::StatusOr<SafetensorsHeader> Parse() {
    Json json;
    try {
      json = Json::parse(text_.begin(), text_.end());
    } catch (const Json::parse_error& error) {
      const int64_t byte =
          std::max<int64_t>(static_cast<int64_t>(error.byte) - 1, 0);
      return ErrorAt(kLengthBytes + byte, "the header is not JSON");
    }
    if (!json.is_object())
      return ErrorAt(kLengthBytes, "the header is not a JSON object");
    for (const auto& [name, value] : json.items()) {
      const absl::Status status =
          name == kMetadataKey ? ParseMetadata(value) : ParseEntry(name, value);
      if (!status.ok()) return status;
    }
    const absl::Status status = CheckCoverage();
    if (!status.ok()) return status;
    return std::move(header_);
  }

 private:
  static absl::Status ErrorAt(int64_t byte, absl::string_view what) {
    return absl::DataLossError(absl::StrCat("at byte ", byte, ": ", what));
  }

  // An error about the entry `name`, at the place where its name stands in the
  // file.
  absl::Status EntryError(const std::string& name,
                          absl::string_view what) const {
    const size_t found = text_.find(Json(name).dump());
    const size_t in_header = found == absl::string_view::npos ? 0 : found;
    return ErrorAt(kLengthBytes + static_cast<int64_t>(in_header),
                   absl::StrCat("tensor '", name, "': ", what));
  }

  absl::Status ParseMetadata(const Json& value) {
    if (!value.is_object())
      return EntryError(kMetadataKey, "is not an object of strings");
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        return EntryError(kMetadataKey, "is not an object of strings");
      header_.metadata[key] = text.get<std::string>();
    }
    return absl::OkStatus();
  }

  absl::Status ParseEntry(const std::string& name, const Json& value) {
    if (!value.is_object() || !value.contains("dtype") ||
        !value["dtype"].is_string() || !value.contains("shape") ||
        !value.contains("data_offsets")) {
      return EntryError(name,
                        "is not an object with dtype, shape and data_offsets");
    }
    const std::string dtype = value["dtype"].get<std::string>();
    const NamedType* type = FindType(dtype);
    if (type == nullptr)
      return EntryError(name, absl::StrCat("unknown dtype '", dtype, "'"));
    const auto shape = ParseNumbers(value["shape"]);
    if (!shape)
      return EntryError(name, "the shape is not a list of whole numbers");
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

  // Every data byte belongs to one tensor. Sorts the entries by their place in
  // the file.
  absl::Status CheckCoverage() {
    std::vector<TensorEntry>& entries = header_.entries;
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    const int64_t data_start =
        kLengthBytes + static_cast<int64_t>(text_.size());
    int64_t covered = 0;
    for (const TensorEntry& entry : entries) {
      if (entry.begin != covered) {
        return ErrorAt(
            data_start + std::min(entry.begin, covered),
            absl::StrCat("tensor '", entry.name, "' ",
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

}  // namespace

absl::Status LayOut(std::vector<TensorEntry>& entries) {
  for (const TensorEntry& entry : entries) {
    if (FindType(entry.dtype) == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor '", entry.name, "' has type ", c10::toString(entry.dtype),
          ", which safetensors files cannot hold here"));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::make_pair(FindType(a.dtype), a.name) <
           std::make_pair(FindType(b.dtype), b.name);
  });
  std::vector<std::string> names = {kMetadataKey};
  int64_t offset = 0;
  for (TensorEntry& entry : entries) {
    names.push_back(entry.name);
    entry.begin = offset;
    entry.end = offset += SizeBytes(entry).value();
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the tensor name '", *twice, "' is taken: names must be unique"));
}

absl::StatusOr<std::string> EncodeHeader(const SafetensorsHeader& header) {
  Json json = Json::object();
  if (!header.metadata.empty()) json[kMetadataKey] = header.metadata;
  for (const TensorEntry& entry : header.entries) {
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
  const uint64_t length =
      text.size();  // little endian, as every machine LibTorch runs on
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, sizeof(length));
  return encoded + text;
}

absl::StatusOr<SafetensorsHeader> ParseHeader(absl::string_view text,
                                              int64_t data_bytes) {
  return HeaderParser(text, data_bytes).Parse();
}

}  // namespace rankwise

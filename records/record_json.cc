#include "records/record_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "records/field_reader.h"
#include "records/field_scanner.h"
#include "records/field_writer.h"
#include "records/record_fields.h"
#include "records/record_kind.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

template <typename T>
void Append(const T& record, std::string* out) {
  out->append("{\"kind\":\"").append(KindOf(record).name).push_back('"');
  FieldWriter fields(out);
  ListFields(fields, record);
  out->push_back('}');
}

template <typename T>
absl::StatusOr<Record> ParseAs(const Json& object) {
  T record;
  FieldReader fields(object, KindOf(record).name);
  ListFields(fields, record);
  if (!fields.status().ok()) return fields.status();
  return record;
}

template <typename T>
std::optional<Record> ScanAs(absl::string_view fields) {
  T record;
  FieldScanner scanner(fields);
  ListFields(scanner, record);
  if (!scanner.AtEnd()) return std::nullopt;
  return record;
}

// A line as AppendJsonLine writes it, as the first kind of record, from the
// `index`th on, whose name and closing quote `text` begins with. Where there is
// none, the line may still be a record.
template <size_t index>
std::optional<Record> Scan(absl::string_view text) {
  if constexpr (index == std::variant_size_v<Record>) {
    return std::nullopt;
  } else {
    using T = std::variant_alternative_t<index, Record>;
    if constexpr (!std::is_same_v<T, RunRecord>) {
      absl::string_view rest = text;
      if (absl::ConsumePrefix(&rest, KindOf(T()).name) &&
          absl::ConsumePrefix(&rest, "\"")) {
        return ScanAs<T>(rest);
      }
    }
    return Scan<index + 1>(text);
  }
}

absl::Status UnknownKind(const Json& kind) {
  std::string name = kind.dump(-1, ' ', /*ensure_ascii=*/true);
  if (name.size() > 60) name = absl::StrCat(name.substr(0, 57), "...");
  return absl::NotFoundError(
      absl::StrCat("the record kind ", name, " is not known"));
}

// As the first kind of record, from the `index`th on, that is called `kind`.
template <size_t index>
absl::StatusOr<Record> ParseKind(const Json& kind, const Json& object) {
  if constexpr (index == std::variant_size_v<Record>) {
    return UnknownKind(kind);
  } else {
    using T = std::variant_alternative_t<index, Record>;
    if (kind == KindOf(T()).name) return ParseAs<T>(object);
    return ParseKind<index + 1>(kind, object);
  }
}

// Any line: also one of another layout, and one that has to be refused.
absl::StatusOr<Record> ParseUnusual(absl::string_view line) {
  const Json object = Json::parse(line.begin(), line.end(), nullptr,
                                  /*allow_exceptions=*/false);
  if (object.is_discarded()) {
    return absl::InvalidArgumentError("this is not JSON");
  }
  if (!object.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a record is a JSON object, and this is of type ", object.type_name()));
  }
  const auto kind = object.find("kind");
  if (kind == object.end() || !kind->is_string()) {
    return absl::InvalidArgumentError(
        "the record has no \"kind\" that is a string");
  }
  return ParseKind<0>(*kind, object);
}

}  // namespace

std::string ToJsonLine(const Record& record) {
  std::string line;
  AppendJsonLine(record, &line);
  return line;
}

void AppendJsonLine(const Record& record, std::string* out) {
  std::visit([out](const auto& r) { Append(r, out); }, record);
}

void AppendJsonLine(const StepRecord& step, std::string* out) {
  Append(step, out);
}

absl::StatusOr<Record> ParseRecord(absl::string_view line) {
  absl::string_view scanned = line;
  if (absl::ConsumePrefix(&scanned, "{\"kind\":\"")) {
    std::optional<Record> record = Scan<0>(scanned);
    if (record.has_value()) return *std::move(record);
  }
  return ParseUnusual(line);
}

}  // namespace rankwise

#include "records/record_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "records/field_reader.h"
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

}  // namespace rankwise

#include "records/record_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "records/command_line.h"
#include "records/field_reader.h"
#include "records/json_text.h"
#include "records/record_fields.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

template <typename T>
void AppendNumber(T value, std::string* out) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value);
  out->append(digits, end.ptr - digits);
}

// A negative, infinite or NaN duration is a clock's mistake.
double Duration(double value) {
  return std::isfinite(value) && value > 0 ? value : 0.0;
}

template <typename T>
void AppendList(const std::vector<T>& values, std::string* out) {
  out->push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out->push_back(',');
    AppendNumber(values[i], out);
  }
  out->push_back(']');
}

// Writes the fields of a record as JSON text, through ListFields.
// Appends to `*out`, which must outlive it and end in '{' or a field.
class FieldWriter {
 public:
  explicit FieldWriter(std::string* out) : out_(out) {}

  bool Has(const char*) const { return true; }
  void Version(const char* name, const std::string& value) {
    Text(name, value);
  }
  // Bytes that are not UTF-8 become U+FFFD: paths and host names may hold any.
  void Text(const char* name, const std::string& value);
  void TextMap(const char* name,
               const std::map<std::string, std::string>& values);
  void TextList(const char* name, const std::vector<std::string>& values);
  void Flag(const char* name, bool value);
  void Choice(const char* name, const std::string& value,
              std::initializer_list<absl::string_view>) {
    Text(name, value);
  }
  void Count(const char* name, int64_t value, int64_t minimum = 0);
  void CountList(const char* name, const std::vector<int64_t>& values);
  // Shortest digits that read back bit-equal; "NaN" and so on as strings.
  void Number(const char* name, double value);
  // A negative, infinite or NaN duration is a clock's mistake: written as 0.
  void Seconds(const char* name, double value);
  void SecondsList(const char* name, const std::vector<double>& values);
  // Below 0 or above `maximum` by rounding: written as that bound. Infinite:
  // written as NaN, which means "not known".
  void Estimate(const char* name, double value,
                double maximum = std::numeric_limits<double>::max());
  template <typename T>
  void Object(const char* name, const T& value) {
    Name(name);
    Braced(value);
  }
  template <typename T>
  void Objects(const char* name, const std::vector<T>& values) {
    Name(name);
    out_->push_back('[');
    for (const T& value : values) {
      if (&value != &values.front()) out_->push_back(',');
      Braced(value);
    }
    out_->push_back(']');
  }
  void Below(const char*, int64_t, const char*, int64_t) {}
  void Check(bool, absl::string_view) {}

 private:
  void Name(const char* name);
  template <typename T>
  void Braced(const T& value) {
    out_->push_back('{');
    FieldWriter inner(out_);
    ListFields(inner, value);
    out_->push_back('}');
  }

  std::string* out_;
};

void FieldWriter::Name(const char* name) {
  if (out_->back() != '{') out_->push_back(',');
  out_->push_back('"');
  out_->append(name).append("\":");
}

void FieldWriter::Text(const char* name, const std::string& value) {
  Name(name);
  AppendJsonString(value, out_);
}

void FieldWriter::TextMap(const char* name,
                          const std::map<std::string, std::string>& values) {
  Name(name);
  out_->push_back('{');
  for (const auto& [key, value] : values) {
    if (out_->back() != '{') out_->push_back(',');
    AppendJsonString(key, out_);
    out_->push_back(':');
    AppendJsonString(value, out_);
  }
  out_->push_back('}');
}

void FieldWriter::TextList(const char* name,
                           const std::vector<std::string>& values) {
  Name(name);
  out_->push_back('[');
  for (const std::string& value : values) {
    if (&value != &values.front()) out_->push_back(',');
    AppendJsonString(value, out_);
  }
  out_->push_back(']');
}

void FieldWriter::Flag(const char* name, bool value) {
  Name(name);
  out_->append(value ? "true" : "false");
}

void FieldWriter::Count(const char* name, int64_t value, int64_t) {
  Name(name);
  AppendNumber(value, out_);
}

void FieldWriter::CountList(const char* name,
                            const std::vector<int64_t>& values) {
  Name(name);
  AppendList(values, out_);
}

void FieldWriter::Number(const char* name, double value) {
  Name(name);
  if (value == 0 && std::signbit(value)) {
    out_->append("-0.0");  // "-0" would read back as the integer 0
  } else if (std::isfinite(value)) {
    AppendNumber(value, out_);
  } else if (std::isnan(value)) {
    out_->append("\"NaN\"");
  } else {
    out_->append(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
  }
}

void FieldWriter::Seconds(const char* name, double value) {
  Number(name, Duration(value));
}

void FieldWriter::SecondsList(const char* name,
                              const std::vector<double>& values) {
  Name(name);
  std::vector<double> durations(values.size());
  std::transform(values.begin(), values.end(), durations.begin(), Duration);
  AppendList(durations, out_);
}

void FieldWriter::Estimate(const char* name, double value, double maximum) {
  Number(name, std::isfinite(value) ? std::clamp(value, 0.0, maximum)
                                    : std::numeric_limits<double>::quiet_NaN());
}

template <typename T>
void Append(const T& record, std::string* out) {
  out->append("{\"kind\":\"").append(KindOf(record).name).push_back('"');
  FieldWriter fields(out);
  ListFields(fields, record);
  out->push_back('}');
}

// As the first kind of record, from the `index`th on, that is called `kind`.
template <size_t index>
absl::StatusOr<Record> ReadKind(absl::string_view kind, FieldReader& fields) {
  if constexpr (index == std::variant_size_v<Record>) {
    return absl::NotFoundError(
        absl::StrCat("the record kind ", Quoted(kind), " is not known"));
  } else {
    using T = std::variant_alternative_t<index, Record>;
    if (kind != kKindOf<T>.name) return ReadKind<index + 1>(kind, fields);
    T record;
    fields.SetName(std::string(kind));
    ListFields(fields, record);
    RETURN_IF_ERROR(fields.status());
    return record;
  }
}

absl::StatusOr<Record> ReadFields(FieldReader& fields) {
  std::string kind;
  fields.Text("kind", kind);
  if (fields.status().ok()) return ReadKind<0>(kind, fields);
  return absl::InvalidArgumentError(
      "the record has no \"kind\" that is a string");
}

// Of a JSON value that begins with `c`.
const char* TypeName(char c) {
  switch (c) {
    case '[':
      return "array";
    case '"':
      return "string";
    case 't':
    case 'f':
      return "boolean";
    case 'n':
      return "null";
    default:
      return "number";
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
  FieldReader fields(line);
  absl::StatusOr<Record> record = ReadFields(fields);
  if (record.ok() && fields.SawAll()) return record;
  if (!IsJson(line)) return absl::InvalidArgumentError("this is not JSON");
  const char first = absl::StripLeadingAsciiWhitespace(line)[0];
  if (first == '{') return record;
  return absl::InvalidArgumentError(absl::StrCat(
      "a record is a JSON object, and this is of type ", TypeName(first)));
}

}  // namespace rankwise

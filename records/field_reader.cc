#include "records/field_reader.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

using Json = nlohmann::json;

bool FitsInt64(const Json& value) {
  if (!value.is_number_integer()) return false;
  return !value.is_number_unsigned() ||
         value.get<uint64_t>() <=
             static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

bool IsCount(const Json& value, int64_t minimum) {
  return FitsInt64(value) && value.get<int64_t>() >= minimum;
}

bool IsSeconds(const Json& value) {
  return value.is_number() && value.get<double>() >= 0;
}

absl::Status CheckVersion(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0, minor = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1], &minor) || major < 0 || minor < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schema_version should be \"major.minor\", not \"", version, "\""));
  }
  if (major == kSchemaMajor) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the records are of schema version ", version,
                   ", and this reader reads ", kSchemaMajor, ".x: use ",
                   major > kSchemaMajor ? "a newer rankwise"
                                        : "the rankwise that wrote them"));
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {}

bool FieldReader::Has(const char* name) const { return object_.contains(name); }

void FieldReader::Version(const char* name, std::string& out) {
  Text(name, out);
  if (status_.ok()) status_ = CheckVersion(out);
}

void FieldReader::Text(const char* name, std::string& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return Expect(name, "a string", *value);
  out = value->get<std::string>();
}

void FieldReader::TextMap(const char* name,
                          std::map<std::string, std::string>& out) {
  const Json* value = FindObject(name);
  if (value == nullptr) return;
  for (const auto& [key, text] : value->items()) {
    if (!text.is_string()) {
      return Expect(absl::StrCat(name, ".", key), "a string", text);
    }
    out[key] = text.get<std::string>();
  }
}

void FieldReader::TextList(const char* name, std::vector<std::string>& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return Expect(name, "a list of strings", *value);
  for (const Json& text : *value) {
    if (!text.is_string()) return Expect(name, "a list of strings", *value);
    out.push_back(text.get<std::string>());
  }
}

void FieldReader::Flag(const char* name, bool& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return Expect(name, "true or false", *value);
  out = value->get<bool>();
}

void FieldReader::Choice(const char* name, std::string& out,
                         std::initializer_list<absl::string_view> choices) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  const std::string text = value->is_string() ? value->get<std::string>() : "";
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) {
    out = text;
    return;
  }
  Expect(name, absl::StrCat("one of ", absl::StrJoin(choices, ", ")), *value);
}

void FieldReader::Count(const char* name, int64_t& out, int64_t minimum) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!IsCount(*value, minimum)) {
    return Expect(name, absl::StrCat("an integer of at least ", minimum),
                  *value);
  }
  out = value->get<int64_t>();
}

void FieldReader::CountList(const char* name, std::vector<int64_t>& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  constexpr absl::string_view kExpected = "a list of integers of at least 0";
  if (!value->is_array()) return Expect(name, kExpected, *value);
  for (const Json& count : *value) {
    if (!IsCount(count, 0)) return Expect(name, kExpected, *value);
    out.push_back(count.get<int64_t>());
  }
}

void FieldReader::Number(const char* name, double& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  using Limits = std::numeric_limits<double>;
  if (value->is_number()) {
    out = value->get<double>();
  } else if (*value == "NaN") {
    out = Limits::quiet_NaN();
  } else if (*value == "Infinity") {
    out = Limits::infinity();
  } else if (*value == "-Infinity") {
    out = -Limits::infinity();
  } else {
    Expect(name, "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", *value);
  }
}

void FieldReader::Seconds(const char* name, double& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (!IsSeconds(*value)) {
    return Expect(name, "a number of seconds, 0 or more", *value);
  }
  out = value->get<double>();
}

void FieldReader::SecondsList(const char* name, std::vector<double>& out) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  constexpr absl::string_view kExpected =
      "a list of numbers of seconds, 0 or more";
  if (!value->is_array()) return Expect(name, kExpected, *value);
  for (const Json& seconds : *value) {
    if (!IsSeconds(seconds)) return Expect(name, kExpected, *value);
    out.push_back(seconds.get<double>());
  }
}

void FieldReader::Estimate(const char* name, double& out, double maximum) {
  const Json* value = Find(name);
  if (value == nullptr) return;
  if (*value == "NaN") {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (value->is_number() && value->get<double>() >= 0 &&
             value->get<double>() <= maximum) {
    out = value->get<double>();
  } else {
    const bool bounded = maximum < std::numeric_limits<double>::max();
    Expect(name,
           bounded
               ? absl::StrCat("a number from 0 to ", maximum, ", or \"NaN\"")
               : "a number of 0 or more, or \"NaN\"",
           *value);
  }
}

void FieldReader::Below(const char* low_name, int64_t low,
                        const char* high_name, int64_t high) {
  if (low < high) return;
  Fail(
      absl::StrCat(low_name, " ", low, " is not below ", high_name, " ", high));
}

const Json* FieldReader::Find(const char* name) {
  if (!status_.ok()) return nullptr;
  const auto field = object_.find(name);
  if (field != object_.end()) return &*field;
  Fail(absl::StrCat("the field \"", name, "\" is missing"));
  return nullptr;
}

const Json* FieldReader::FindObject(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr || value->is_object()) return value;
  Expect(name, "an object", *value);
  return nullptr;
}

std::vector<const Json*> FieldReader::FindObjects(const char* name) {
  const Json* value = Find(name);
  if (value == nullptr) return {};
  std::vector<const Json*> objects;
  if (value->is_array()) {
    for (const Json& element : *value) {
      if (element.is_object()) objects.push_back(&element);
    }
    if (objects.size() == value->size()) return objects;
  }
  Expect(name, "a list of objects", *value);
  return {};
}

std::string FieldReader::ElementName(absl::string_view list,
                                     size_t index) const {
  return absl::StrCat(where_, ".", list, "[", index, "]");
}

void FieldReader::Expect(absl::string_view name, absl::string_view expected,
                         const Json& found) {
  std::string text = found.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = absl::StrCat(text.substr(0, 57), "...");
  Fail(absl::StrCat("\"", name, "\" should be ", expected, ", not ", text));
}

void FieldReader::Fail(absl::string_view message) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("in the ", where_, " record: ", message));
}

}  // namespace rankwise

#include "records/record_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "records/command_line.h"
#include "records/record_fields.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using ::nlohmann::json;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();

// Writes the fields of a record as JSON text, through ListFields. Appends to
// `*out`, which must outlive the writer and end in '{' or a field. Avoids json
// values because trainers write records between steps.
class FieldWriter {
 public:
  explicit FieldWriter(std::string* out) : out_(out) {}

  bool Has(const char*) const { return true; }
  void Version(const char* name, const std::string& value) {
    Text(name, value);
  }
  void Text(const char* name, const std::string& value) {
    Name(name);
    AppendText(value);
  }
  void TextMap(const char* name,
               const std::map<std::string, std::string>& values) {
    Map(name, values, [this](const std::string& text) { AppendText(text); });
  }
  void TextList(const char* name, const std::vector<std::string>& values) {
    List(name, values, [this](const std::string& text) { AppendText(text); });
  }
  void Flag(const char* name, bool value) {
    Name(name);
    out_->append(value ? "true" : "false");
  }
  void Choice(const char* name, const std::string& value,
              std::initializer_list<absl::string_view>) {
    Text(name, value);
  }
  void Count(const char* name, int64_t value, int64_t /*minimum*/ = 0) {
    Name(name);
    AppendNumber(value);
  }
  void CountList(const char* name, const std::vector<int64_t>& values) {
    List(name, values, [this](int64_t count) { AppendNumber(count); });
  }
  void Number(const char* name, double value) {
    Name(name);
    AppendDouble(value);
  }
  void Seconds(const char* name, double value) {
    Number(name, Duration(value));
  }
  void SecondsList(const char* name, const std::vector<double>& values) {
    List(name, values, [this](double value) { AppendDouble(Duration(value)); });
  }
  void SecondsMap(const char* name,
                  const std::map<std::string, double>& values) {
    Map(name, values, [this](double value) { AppendDouble(Duration(value)); });
  }
  // Clamps rounding errors to [0, `maximum`]. Writes non-finite values as NaN,
  // which means unknown.
  void Estimate(const char* name, double value, double maximum = kLargest) {
    Number(name,
           std::isfinite(value) ? std::clamp(value, 0.0, maximum) : kUnknown);
  }
  template <typename T>
  void Object(const char* name, const T& value) {
    Name(name);
    AppendObject(value);
  }
  template <typename T>
  void Objects(const char* name, const std::vector<T>& values) {
    List(name, values, [this](const T& value) { AppendObject(value); });
  }
  void Below(const char*, int64_t, const char*, int64_t) {}
  void Check(bool, absl::string_view) {}

 private:
  // Small negative differences of rounded times become 0. Any other impossible
  // duration is a clock error and is written unchanged, so that readers reject
  // it by file and line.
  static double Duration(double value) {
    constexpr double kRounding = 1e-6;  // Unix times: 2.4e-7 s
    return value <= 0 && value > -kRounding ? 0.0 : value;
  }

  void Name(const char* name) {
    if (out_->back() != '{') out_->push_back(',');
    absl::StrAppend(out_, "\"", name, "\":");
  }
  template <typename T, typename Append>
  void List(const char* name, const std::vector<T>& values,
            const Append& append) {
    Name(name);
    out_->push_back('[');
    for (const T& value : values) {
      if (out_->back() != '[') out_->push_back(',');
      append(value);
    }
    out_->push_back(']');
  }
  template <typename T, typename Append>
  void Map(const char* name, const std::map<std::string, T>& values,
           const Append& append) {
    Name(name);
    out_->push_back('{');
    for (const auto& [key, value] : values) {
      if (out_->back() != '{') out_->push_back(',');
      AppendText(key);
      out_->push_back(':');
      append(value);
    }
    out_->push_back('}');
  }
  // Replaces bytes that are not UTF-8 by U+FFFD: paths and host names may
  // contain any byte.
  void AppendText(const std::string& text) {
    out_->append(
        json(text).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  // Writes the shortest digits that read back bit-equal; non-finite numbers as
  // strings.
  void AppendDouble(double value) {
    if (value == 0 && std::signbit(value)) {
      out_->append("-0.0");  // "-0" would read back as the integer 0
    } else if (std::isfinite(value)) {
      AppendNumber(value);
    } else if (std::isnan(value)) {
      out_->append("\"NaN\"");
    } else {
      out_->append(value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    }
  }
  template <typename T>
  void AppendNumber(T value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof(digits), value);
    out_->append(digits, end.ptr - digits);
  }
  template <typename T>
  void AppendObject(const T& value) {
    out_->push_back('{');
    FieldWriter inner(out_);
    ListFields(inner, value);
    out_->push_back('}');
  }

  std::string* const out_;
};

absl::Status CheckVersion(const std::string& version) {
  const std::vector<std::string> parts = absl::StrSplit(version, '.');
  int major = 0, minor = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &major) ||
      !absl::SimpleAtoi(parts[1], &minor) || major < 0 || minor < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "schema_version should be \"major.minor\", not ", Quoted(version)));
  }
  if (major == kSchemaMajor) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the records are of schema version ", major, ".", minor,
                   ", and this reader reads ", kSchemaMajor, ".x: use ",
                   major > kSchemaMajor ? "a newer rankwise"
                                        : "the rankwise that wrote them"));
}

bool IsDeeperThan(int levels, const json& value) {
  if (!value.is_structured()) return false;
  return levels == 0 || absl::c_any_of(value, [levels](const json& inner) {
           return IsDeeperThan(levels - 1, inner);
         });
}

// Formats a value for a message: printable ASCII of limited length.
std::string Shown(const json& value) {
  constexpr size_t kLongest = 60;  // bytes
  constexpr int kDeepest = 20;     // dump() recurses for every level
  if (IsDeeperThan(kDeepest, value)) return "a deeply nested value";
  const std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true);
  if (text.size() <= kLongest) return text;
  return absl::StrCat(text.substr(0, kLongest - 3), "...");
}

bool IsText(const json& value, absl::string_view text) {
  return value.is_string() && value.get_ref<const std::string&>() == text;
}

bool TakeText(const json& value, std::string& out) {
  if (!value.is_string()) return false;
  out = value.get_ref<const std::string&>();
  return true;
}

bool TakeCount(const json& value, int64_t& out, int64_t minimum = 0) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<uint64_t>() > kMost)) {
    return false;
  }
  out = value.get<int64_t>();
  return out >= minimum;
}

bool TakeSeconds(const json& value, double& out) {
  if (!value.is_number()) return false;
  out = value.get<double>();
  return out >= 0;
}

// Reads the fields of a record from a JSON object, through ListFields. The
// first field that is missing, of the wrong type or out of range sets status();
// later calls then do nothing. Fields unknown to ListFields are skipped.
class FieldReader {
 public:
  // `where` names the object in messages: "traffic.events[1]". `object` must
  // outlive the reader.
  FieldReader(const json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const absl::Status& status() const { return status_; }

  bool Has(const char* name) const { return object_.contains(name); }
  // Also rejects other major versions.
  void Version(const char* name, std::string& out) {
    Text(name, out);
    if (status_.ok()) status_ = CheckVersion(out);
  }
  void Text(const char* name, std::string& out) {
    const json* value = Find(name);
    if (value == nullptr || TakeText(*value, out)) return;
    Expect(name, "a string", *value);
  }
  void TextMap(const char* name, std::map<std::string, std::string>& out) {
    Map(name, "a string", out, TakeText);
  }
  void TextList(const char* name, std::vector<std::string>& out) {
    List(name, "a list of strings", out, TakeText);
  }
  void Flag(const char* name, bool& out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Expect(name, "true or false", *value);
    out = value->get<bool>();
  }
  void Choice(const char* name, std::string& out,
              std::initializer_list<absl::string_view> choices) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (TakeText(*value, out) && absl::c_linear_search(choices, out)) return;
    Expect(name, absl::StrCat("one of ", absl::StrJoin(choices, ", ")), *value);
  }
  void Count(const char* name, int64_t& out, int64_t minimum = 0) {
    const json* value = Find(name);
    if (value == nullptr || TakeCount(*value, out, minimum)) return;
    Expect(name, absl::StrCat("an integer of at least ", minimum), *value);
  }
  void CountList(const char* name, std::vector<int64_t>& out) {
    List(name, "a list of integers of at least 0", out,
         [](const json& value, int64_t& count) {
           return TakeCount(value, count);
         });
  }
  void Number(const char* name, double& out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (value->is_number()) {
      out = value->get<double>();
    } else if (IsText(*value, "NaN")) {
      out = kUnknown;
    } else if (IsText(*value, "Infinity")) {
      out = kInfinity;
    } else if (IsText(*value, "-Infinity")) {
      out = -kInfinity;
    } else {
      Expect(name, "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", *value);
    }
  }
  void Seconds(const char* name, double& out) {
    const json* value = Find(name);
    if (value == nullptr || TakeSeconds(*value, out)) return;
    Expect(name, "a number of seconds, 0 or more", *value);
  }
  void SecondsList(const char* name, std::vector<double>& out) {
    List(name, "a list of numbers of seconds, 0 or more", out, TakeSeconds);
  }
  void SecondsMap(const char* name, std::map<std::string, double>& out) {
    Map(name, "a number of seconds, 0 or more", out, TakeSeconds);
  }
  // Reads a number from 0 to `maximum`, or "NaN" if unknown.
  void Estimate(const char* name, double& out, double maximum = kLargest) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (IsText(*value, "NaN")) {
      out = kUnknown;
    } else if (!TakeSeconds(*value, out) || out > maximum) {
      Expect(name,
             maximum < kLargest
                 ? absl::StrCat("a number from 0 to ", maximum, ", or \"NaN\"")
                 : "a number of 0 or more, or \"NaN\"",
             *value);
    }
  }
  template <typename T>
  void Object(const char* name, T& out) {
    const json* value = Find(name);
    if (value == nullptr) return;
    if (!value->is_object()) return Expect(name, "an object", *value);
    Read(*value, absl::StrCat(where_, ".", name), out);
  }
  template <typename T>
  void Objects(const char* name, std::vector<T>& out) {
    List(name, "a list of objects", out, [&](const json& value, T& object) {
      if (!value.is_object()) return false;
      Read(value, absl::StrCat(where_, ".", name, "[", out.size() - 1, "]"),
           object);
      return true;
    });
  }
  // Fails unless low < high.
  void Below(const char* low_name, int64_t low, const char* high_name,
             int64_t high) {
    if (low < high) return;
    Check(false, absl::StrCat(low_name, " ", low, " is not below ", high_name,
                              " ", high));
  }
  // Fails with `message` unless `ok`.
  void Check(bool ok, absl::string_view message) {
    if (ok) return;
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("in the ", where_, " record: ", message)));
  }

 private:
  // Returns the field's value; nullptr after a failure or if it is missing,
  // which sets status().
  const json* Find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto field = object_.find(name);
    if (field != object_.end()) return &*field;
    Check(false, absl::StrCat("the field \"", name, "\" is missing"));
    return nullptr;
  }
  // `take` converts an element and returns whether it has the expected type.
  template <typename T, typename Take>
  void List(const char* name, absl::string_view expected, std::vector<T>& out,
            const Take& take) {
    const json* list = Find(name);
    if (list == nullptr) return;
    const auto take_one = [&](const json& value) {
      return take(value, out.emplace_back());
    };
    if (list->is_array() && absl::c_all_of(*list, take_one)) return;
    Expect(name, expected, *list);
  }
  template <typename T, typename Take>
  void Map(const char* name, absl::string_view expected,
           std::map<std::string, T>& out, const Take& take) {
    const json* map = Find(name);
    if (map == nullptr) return;
    if (!map->is_object()) return Expect(name, "an object", *map);
    for (const auto& [key, value] : map->items()) {
      if (take(value, out[key])) continue;
      return Expect(absl::StrCat(name, ".", absl::CHexEscape(key)), expected,
                    value);
    }
  }
  template <typename T>
  void Read(const json& object, std::string where, T& out) {
    FieldReader inner(object, std::move(where));
    ListFields(inner, out);
    status_.Update(inner.status());
  }
  void Expect(absl::string_view name, absl::string_view expected,
              const json& found) {
    const bool is_duration = absl::StrContains(expected, "of seconds");
    Check(false,
          absl::StrCat("\"", name, "\" should be ", expected, ", not ",
                       Shown(found),
                       is_duration ? "; the clock of that rank was wrong: "
                                     "record the run again"
                                   : ""));
  }

  const json& object_;
  const std::string where_;
  absl::Status status_;
};

// Reads the object as the record of the given kind; searches the kinds from
// `index` on.
template <size_t index = 0>
absl::StatusOr<Record> ReadKind(const std::string& kind, const json& object) {
  if constexpr (index == std::variant_size_v<Record>) {
    return absl::NotFoundError(
        absl::StrCat("the record kind ", Quoted(kind), " is not known"));
  } else {
    if (kind != kRecordKinds[index].name) {
      return ReadKind<index + 1>(kind, object);
    }
    std::variant_alternative_t<index, Record> record;
    FieldReader fields(object, kind);
    ListFields(fields, record);
    RETURN_IF_ERROR(fields.status());
    return record;
  }
}

}  // namespace

std::string ToJsonLine(const Record& record) {
  std::string line;
  AppendJsonLine(record, &line);
  return line;
}

void AppendJsonLine(const Record& record, std::string* out) {
  absl::StrAppend(out, "{\"kind\":\"", kRecordKinds[record.index()].name, "\"");
  FieldWriter fields(out);
  std::visit([&fields](const auto& r) { ListFields(fields, r); }, record);
  out->push_back('}');
}

absl::StatusOr<Record> ParseRecord(absl::string_view line) {
  const json object = json::parse(line.begin(), line.end(), nullptr,
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
  return ReadKind(kind->get_ref<const std::string&>(), object);
}

}  // namespace rankwise

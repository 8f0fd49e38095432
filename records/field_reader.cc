#include "records/field_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

constexpr size_t kLongestShown = 60;  // bytes of a wrong value

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

// A value as a message shows it: in printable ASCII, and not too long.
std::string Shown(absl::string_view value) {
  std::string text;
  for (char c : value.substr(0, kLongestShown + 1)) {
    text += absl::ascii_isprint(c)
                ? std::string(1, c)
                : absl::StrFormat("\\x%02x", static_cast<unsigned char>(c));
  }
  if (text.size() <= kLongestShown) return text;
  return absl::StrCat(text.substr(0, kLongestShown - 3), "...");
}

}  // namespace

FieldReader::FieldReader(absl::string_view line) : object_(line) {
  object_.SkipSpace();
  cursor_ = object_;
  saw_all_ = cursor_.Take('{');
}

FieldReader::FieldReader(const FieldReader* parent, const char* name,
                         int64_t index, JsonCursor cursor)
    : parent_(parent),
      name_(name),
      index_(index),
      object_(cursor),
      cursor_(cursor) {
  cursor_.Take('{');
}

void FieldReader::Leave(const FieldReader& inner) {
  status_.Update(inner.status_);
  JsonCursor behind = inner.cursor_;
  if (inner.saw_all_ && behind.Take('}')) {
    cursor_ = behind;
    return;
  }
  saw_all_ = false;
  cursor_.Value();
}

bool FieldReader::Next(absl::string_view name, JsonCursor* value) const {
  *value = cursor_;
  return (first_ || value->Take(',')) && value->Take('"') &&
         value->Take(name) && value->Take("\":");
}

bool FieldReader::Elsewhere(absl::string_view name, JsonCursor* value) const {
  if (saw_all_ && cursor_.Peek() == '}') return false;
  JsonCursor at = object_;
  std::string key;
  bool found = false, plain = true;
  at.ForEach('{', '}', [&] {
    if (!at.String(&key, &plain)) return false;
    at.SkipSpace();
    if (!at.Take(':')) return false;
    at.SkipSpace();
    found = key == name;
    return !found && !at.Value().empty();
  });
  *value = at;
  return found;
}

bool FieldReader::Has(absl::string_view name) const {
  JsonCursor value;
  return Next(name, &value) || Elsewhere(name, &value);
}

bool FieldReader::Find(const char* name) {
  if (!status_.ok()) return false;
  if (!Next(name, &value_)) {
    const bool found = Elsewhere(name, &value_);
    saw_all_ = false;
    if (!found) {
      Fail(absl::StrCat("the field \"", name, "\" is missing"));
      return false;
    }
  }
  value_.SkipSpace();
  cursor_ = value_;
  first_ = false;
  return true;
}

void FieldReader::Version(const char* name, std::string& out) {
  Text(name, out);
  if (status_.ok()) status_ = CheckVersion(out);
}

void FieldReader::Text(const char* name, std::string& out) {
  if (!Find(name)) return;
  if (!cursor_.String(&out, &saw_all_)) Expect(name, "a string", value_);
}

void FieldReader::TextMap(const char* name,
                          std::map<std::string, std::string>& out) {
  if (!Find(name)) return;
  const bool is_map = cursor_.ForEach('{', '}', [&] {
    std::string key;
    if (!cursor_.String(&key, &saw_all_)) return false;
    cursor_.SkipSpace();
    if (!cursor_.Take(':')) return false;
    cursor_.SkipSpace();
    if (cursor_.String(&out[key], &saw_all_)) return true;
    Expect(absl::StrCat(name, ".", key), "a string", cursor_);
    return false;
  });
  if (!is_map) Expect(name, "an object", value_);
}

void FieldReader::TextList(const char* name, std::vector<std::string>& out) {
  if (!Find(name)) return;
  const bool is_list = cursor_.ForEach('[', ']', [this, &out] {
    return cursor_.String(&out.emplace_back(), &saw_all_);
  });
  if (!is_list) Expect(name, "a list of strings", value_);
}

void FieldReader::Flag(const char* name, bool& out) {
  if (!Find(name)) return;
  out = cursor_.Take("true");
  if (!out && !cursor_.Take("false")) Expect(name, "true or false", value_);
}

void FieldReader::Choice(const char* name, std::string& out,
                         std::initializer_list<absl::string_view> choices) {
  if (!Find(name)) return;
  if (cursor_.String(&out, &saw_all_) &&
      std::find(choices.begin(), choices.end(), out) != choices.end()) {
    return;
  }
  Expect(name, absl::StrCat("one of ", absl::StrJoin(choices, ", ")), value_);
}

void FieldReader::Count(const char* name, int64_t& out, int64_t minimum) {
  if (!Find(name)) return;
  if (cursor_.Integer(&out) && out >= minimum) return;
  Expect(name, absl::StrCat("an integer of at least ", minimum), value_);
}

void FieldReader::CountList(const char* name, std::vector<int64_t>& out) {
  if (!Find(name)) return;
  const bool are_counts = cursor_.ForEach('[', ']', [this, &out] {
    return cursor_.Integer(&out.emplace_back()) && out.back() >= 0;
  });
  if (!are_counts) Expect(name, "a list of integers of at least 0", value_);
}

void FieldReader::Number(const char* name, double& out) {
  using Limits = std::numeric_limits<double>;
  if (!Find(name)) return;
  if (cursor_.Number(&out)) return;
  if (cursor_.Take("\"NaN\"")) {
    out = Limits::quiet_NaN();
  } else if (cursor_.Take("\"Infinity\"")) {
    out = Limits::infinity();
  } else if (cursor_.Take("\"-Infinity\"")) {
    out = -Limits::infinity();
  } else {
    Expect(name, "a number, \"NaN\", \"Infinity\" or \"-Infinity\"", value_);
  }
}

void FieldReader::Seconds(const char* name, double& out) {
  if (!Find(name)) return;
  if (cursor_.Number(&out) && out >= 0) return;
  Expect(name, "a number of seconds, 0 or more", value_);
}

void FieldReader::SecondsList(const char* name, std::vector<double>& out) {
  if (!Find(name)) return;
  const bool are_seconds = cursor_.ForEach('[', ']', [this, &out] {
    return cursor_.Number(&out.emplace_back()) && out.back() >= 0;
  });
  if (are_seconds) return;
  Expect(name, "a list of numbers of seconds, 0 or more", value_);
}

void FieldReader::Estimate(const char* name, double& out, double maximum) {
  if (!Find(name)) return;
  if (cursor_.Take("\"NaN\"")) {
    out = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  if (cursor_.Number(&out) && out >= 0 && out <= maximum) return;
  const bool bounded = maximum < std::numeric_limits<double>::max();
  Expect(name,
         bounded ? absl::StrCat("a number from 0 to ", maximum, ", or \"NaN\"")
                 : "a number of 0 or more, or \"NaN\"",
         value_);
}

void FieldReader::Below(const char* low_name, int64_t low,
                        const char* high_name, int64_t high) {
  if (low < high) return;
  Fail(
      absl::StrCat(low_name, " ", low, " is not below ", high_name, " ", high));
}

std::string FieldReader::Where() const {
  if (parent_ == nullptr) return name_;
  const std::string element = index_ < 0 ? "" : absl::StrCat("[", index_, "]");
  return absl::StrCat(parent_->Where(), ".", name_, element);
}

void FieldReader::Expect(absl::string_view name, absl::string_view expected,
                         JsonCursor found) {
  Fail(absl::StrCat("\"", name, "\" should be ", expected, ", not ",
                    Shown(found.Value())));
}

void FieldReader::Fail(absl::string_view message) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(
      absl::StrCat("in the ", Where(), " record: ", message));
}

}  // namespace rankwise

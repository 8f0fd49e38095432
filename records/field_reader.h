// Reads the fields of a record straight from its line. Used through ListFields
// (record_fields.h).
#ifndef RANKWISE_RECORDS_FIELD_READER_H_
#define RANKWISE_RECORDS_FIELD_READER_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "records/json_text.h"
#include "records/record_fields.h"

namespace rankwise {

// Fast where the fields are as ToJsonLine writes them: all of them, in order,
// without spaces; in another layout each is searched for. The first field that
// is missing, of the wrong type or out of range sets status(); later calls then
// do nothing. Fields nobody asks for are skipped.
class FieldReader {
 public:
  // Of the JSON object that `line` holds.
  explicit FieldReader(absl::string_view line);

  // How messages call the object: "step".
  void SetName(std::string name) { name_ = std::move(name); }

  bool Has(absl::string_view name) const;
  // Also refuses another major version (FailedPrecondition).
  void Version(const char* name, std::string& out);
  void Text(const char* name, std::string& out);
  void TextMap(const char* name, std::map<std::string, std::string>& out);
  void TextList(const char* name, std::vector<std::string>& out);
  void Flag(const char* name, bool& out);
  void Choice(const char* name, std::string& out,
              std::initializer_list<absl::string_view> choices);
  void Count(const char* name, int64_t& out, int64_t minimum = 0);
  void CountList(const char* name, std::vector<int64_t>& out);
  void Number(const char* name, double& out);
  void Seconds(const char* name, double& out);
  void SecondsList(const char* name, std::vector<double>& out);
  // A number from 0 to `maximum`, or "NaN": not known.
  void Estimate(const char* name, double& out,
                double maximum = std::numeric_limits<double>::max());
  template <typename T>
  void Object(const char* name, T& out) {
    if (!Find(name)) return;
    if (!ReadObject(name, -1, out)) Expect(name, "an object", value_);
  }
  template <typename T>
  void Objects(const char* name, std::vector<T>& out) {
    if (!Find(name)) return;
    const bool is_list = cursor_.ForEach('[', ']', [this, name, &out] {
      const auto index = static_cast<int64_t>(out.size());
      return ReadObject(name, index, out.emplace_back());
    });
    if (!is_list) Expect(name, "a list of objects", value_);
  }
  // Fails unless low < high.
  void Below(const char* low_name, int64_t low, const char* high_name,
             int64_t high);
  // Fails with `message` unless `ok`.
  void Check(bool ok, absl::string_view message) {
    if (!ok) Fail(message);
  }

  const absl::Status& status() const { return status_; }

  // True if all of `line` was read, so that it must be JSON: no part of it was
  // passed over.
  bool SawAll() const { return saw_all_ && cursor_.rest() == "}"; }

 private:
  // Of the object at `cursor`, the field `name` of `parent`, or its `index`th
  // element.
  FieldReader(const FieldReader* parent, const char* name, int64_t index,
              JsonCursor cursor);

  // Reads the object at the cursor; false where there is none.
  template <typename T>
  bool ReadObject(const char* name, int64_t index, T& out) {
    if (cursor_.Peek() != '{') return false;
    FieldReader inner(this, name, index, cursor_);
    ListFields(inner, out);
    Leave(inner);
    return true;
  }
  void Leave(const FieldReader& inner);

  // Goes to the value of a field; false, and fails, where there is none.
  bool Find(const char* name);
  // The value of the field after the one read last, if `name` is its name.
  bool Next(absl::string_view name, JsonCursor* value) const;
  bool Elsewhere(absl::string_view name, JsonCursor* value) const;
  std::string Where() const;
  void Expect(absl::string_view name, absl::string_view expected,
              JsonCursor found);
  void Fail(absl::string_view message);

  const FieldReader* const parent_ = nullptr;
  std::string name_;
  const int64_t index_ = -1;  // among its parent's objects; -1: no list
  JsonCursor object_;         // from its '{'
  JsonCursor cursor_;         // behind what was read last
  JsonCursor value_;          // of the field that was found last
  bool first_ = true;         // none was
  bool saw_all_ = true;       // between `object_` and `cursor_`
  absl::Status status_;
};

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_FIELD_READER_H_

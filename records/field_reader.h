// Reads the fields of a record from parsed JSON. Used through ListFields
// (record_fields.h).

#ifndef RECORDS_FIELD_READER_H_
#define RECORDS_FIELD_READER_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "records/record_fields.h"

namespace rankwise {

// The first field that is missing, of the wrong type or out of range sets
// status(); later calls then do nothing. Fields nobody asks for are skipped.
class FieldReader {
 public:
  // `object` must be a JSON object and outlive the reader. `where` is how
  // messages call it: "step", "run.host".
  FieldReader(const nlohmann::json& object, std::string where);

  bool Has(const char* name) const;
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
    const nlohmann::json* value = FindObject(name);
    if (value == nullptr) return;
    FieldReader inner(*value, where_ + "." + name);
    ListFields(inner, out);
    status_.Update(inner.status_);
  }
  template <typename T>
  void Objects(const char* name, std::vector<T>& out) {
    for (const nlohmann::json* value : FindObjects(name)) {
      FieldReader inner(*value, ElementName(name, out.size()));
      ListFields(inner, out.emplace_back());
      status_.Update(inner.status_);
    }
  }
  // Fails unless low < high.
  void Below(const char* low_name, int64_t low, const char* high_name,
             int64_t high);
  // Fails with `message` unless `ok`.
  void Check(bool ok, absl::string_view message) {
    if (!ok) Fail(message);
  }

  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* Find(const char* name);
  const nlohmann::json* FindObject(const char* name);
  std::vector<const nlohmann::json*> FindObjects(const char* name);
  std::string ElementName(absl::string_view list, size_t index) const;
  void Expect(absl::string_view name, absl::string_view expected,
              const nlohmann::json& found);
  void Fail(absl::string_view message);

  const nlohmann::json& object_;
  const std::string where_;
  absl::Status status_;
};

}  // namespace rankwise

#endif  // RECORDS_FIELD_READER_H_

// Writes the fields of a record as JSON text. Used through ListFields
// (record_fields.h).

#ifndef RECORDS_FIELD_WRITER_H_
#define RECORDS_FIELD_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "records/record_fields.h"

namespace rankwise {

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

}  // namespace rankwise

#endif  // RECORDS_FIELD_WRITER_H_

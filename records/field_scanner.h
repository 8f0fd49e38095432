// Reads the fields of a record straight from its line. Used through ListFields
// (record_fields.h), as FieldReader is, and many times as fast.

#ifndef RECORDS_FIELD_SCANNER_H_
#define RECORDS_FIELD_SCANNER_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "records/record_fields.h"

namespace rankwise {

// Knows only the layout that FieldWriter writes: every field, in order, without
// spaces. At whatever else it meets, broken or only unusual, it gives up: then
// FieldReader has to say what the line holds. What it does read, it reads as
// FieldReader would. Run records are left to FieldReader.
class FieldScanner {
 public:
  // `text`: what follows an object's `kind`, up to its end.
  explicit FieldScanner(absl::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  // True if the next field is `name`.
  bool Has(const char* name);
  void Text(const char* name, std::string& out);
  void Flag(const char* name, bool& out);
  void Choice(const char* name, std::string& out,
              std::initializer_list<absl::string_view> choices);
  void Count(const char* name, int64_t& out, int64_t minimum = 0);
  void CountList(const char* name, std::vector<int64_t>& out);
  void Number(const char* name, double& out);
  void Seconds(const char* name, double& out);
  void SecondsList(const char* name, std::vector<double>& out);
  void Estimate(const char* name, double& out,
                double maximum = std::numeric_limits<double>::max());
  template <typename T>
  void Objects(const char* name, std::vector<T>& out) {
    if (!Name(name)) return;
    ListOf([this, &out] {
      if (!Take('{')) return GiveUp();
      first_ = true;
      ListFields(*this, out.emplace_back());
      first_ = false;
      if (!Take('}')) GiveUp();
    });
  }
  void Below(const char*, int64_t low, const char*, int64_t high) {
    if (low >= high) GiveUp();
  }
  void Check(bool ok, absl::string_view) {
    if (!ok) GiveUp();
  }
  void TextMap(const char*, std::map<std::string, std::string>&) { GiveUp(); }

  // True if everything was read and nothing but the object's '}' follows.
  bool AtEnd() const { return ok_ && end_ - at_ == 1 && *at_ == '}'; }

 private:
  // Takes the comma, where one is due, and `"name":`.
  bool Name(absl::string_view name);
  bool Take(char c);
  bool Take(absl::string_view text);
  bool Quoted(absl::string_view& out);
  bool Integer(int64_t& out);
  bool Real(double& out);
  void GiveUp() { ok_ = false; }

  // `[` elements `]`.
  template <typename Element>
  void ListOf(const Element& element) {
    if (!Take('[')) return GiveUp();
    if (Take(']')) return;
    do {
      element();
    } while (ok_ && Take(','));
    if (!Take(']')) GiveUp();
  }

  const char* at_;
  const char* const end_;
  bool first_ = false;  // the next field is its object's first
  bool ok_ = true;
};

}  // namespace rankwise

#endif  // RECORDS_FIELD_SCANNER_H_

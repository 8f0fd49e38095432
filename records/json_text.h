// JSON text (RFC 8259), read in place and written: what the records need of it.
#ifndef RANKWISE_RECORDS_JSON_TEXT_H_
#define RANKWISE_RECORDS_JSON_TEXT_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace rankwise {

// Appends `text` as a string in quotes. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(absl::string_view text, std::string* out);

// True if `text` is one JSON value and nothing else but white space.
bool IsJson(absl::string_view text);

// Reads values one after the other. Where a function fails, its position is
// unchanged.
class JsonCursor {
 public:
  JsonCursor() = default;
  explicit JsonCursor(absl::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  // What has not been read yet.
  absl::string_view rest() const {
    return {at_, static_cast<size_t>(end_ - at_)};
  }
  char Peek() const { return at_ == end_ ? '\0' : *at_; }

  bool Take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool Take(absl::string_view text);
  void SkipSpace();

  // A string, its escapes resolved. Whether it is UTF-8 is not checked; then,
  // and where it holds escapes, *plain becomes false.
  bool String(std::string* out, bool* plain);
  // Fails for what is no integer, as 1.0, or does not fit.
  bool Integer(int64_t* out);
  bool Number(double* out);

  // Passes over a value of any kind and gives its text; "" where it is not
  // JSON. What is nested too deeply for this is taken for no JSON.
  absl::string_view Value(int depth = 0);

  // Calls `element` for each element between `open` and `close`, in front of
  // which it is called; false where it is no such list, or `element` fails.
  template <typename Element>
  bool ForEach(char open, char close, const Element& element) {
    if (!Take(open)) return false;
    SkipSpace();
    if (Take(close)) return true;
    while (element()) {
      SkipSpace();
      if (Take(close)) return true;
      if (!Take(',')) return false;
      SkipSpace();
    }
    return false;
  }

 private:
  bool SkipString();

  const char* at_ = nullptr;
  const char* end_ = nullptr;
};

}  // namespace rankwise

#endif  // RANKWISE_RECORDS_JSON_TEXT_H_

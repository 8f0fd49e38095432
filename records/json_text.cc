#include "records/json_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"

namespace rankwise {
namespace {

constexpr int kDeepest = 512;
constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Stands for itself in a JSON string, and is a whole character.
bool IsPlain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// The bytes at the start of `text` that are one character of UTF-8 (Unicode
// 15.0, table 3-7), or that could have begun one.
struct Utf8 {
  size_t bytes = 0;
  bool valid = false;
};

Utf8 FirstCharacter(absl::string_view text) {
  const auto byte = [text](size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size() || byte(i) < low || byte(i) > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {length, true};
}

void AppendUtf8(uint32_t code, std::string* out) {
  if (code < 0x80) {
    out->push_back(static_cast<char>(code));
    return;
  }
  const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr uint32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(static_cast<char>(kFirst[more] | code >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80 | ((code >> (6 * i)) & 0x3F)));
  }
}

constexpr char kEscaped[] = "\"\\/bfnrt";
constexpr char kMeant[] = "\"\\/\b\f\n\r\t";

// The code unit of `\uXXXX`; takes it off `*text`.
bool TakeCodeUnit(absl::string_view* text, uint32_t* unit) {
  if (text->size() < 6 || (*text)[0] != '\\' || (*text)[1] != 'u') return false;
  const char* const digits = text->data() + 2;
  const auto read = std::from_chars(digits, digits + 4, *unit, 16);
  if (read.ptr != digits + 4) return false;
  text->remove_prefix(6);
  return true;
}

// The character of the escape that `*text` begins with; takes it off.
bool TakeEscape(absl::string_view* text, std::string* out) {
  if (text->size() < 2) return false;
  if (const char* short_form = std::strchr(kEscaped, (*text)[1]);
      (*text)[1] != '\0' && short_form != nullptr) {
    out->push_back(kMeant[short_form - kEscaped]);
    text->remove_prefix(2);
    return true;
  }
  uint32_t code = 0, second = 0;
  if (!TakeCodeUnit(text, &code)) return false;
  if (code >= 0xD800 && code < 0xE000) {  // half of a pair
    if (code >= 0xDC00 || !TakeCodeUnit(text, &second) || second < 0xDC00 ||
        second >= 0xE000) {
      return false;
    }
    code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
  }
  AppendUtf8(code, out);
  return true;
}

// Where the JSON number at `at` ends; null: there is none.
const char* NumberEnd(const char* at, const char* end, bool* whole) {
  *whole = true;
  if (at != end && *at == '-') ++at;
  if (at == end || !IsDigit(*at)) return nullptr;
  at = *at == '0' ? at + 1 : std::find_if_not(at, end, IsDigit);
  if (at != end && *at == '.') {
    *whole = false;
    if (++at == end || !IsDigit(*at)) return nullptr;
    at = std::find_if_not(at, end, IsDigit);
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    *whole = false;
    if (++at != end && (*at == '+' || *at == '-')) ++at;
    if (at == end || !IsDigit(*at)) return nullptr;
    at = std::find_if_not(at, end, IsDigit);
  }
  return at;
}

}  // namespace

void AppendJsonString(absl::string_view text, std::string* out) {
  out->push_back('"');
  while (true) {
    const auto plain = std::find_if_not(text.begin(), text.end(), IsPlain);
    out->append(text.begin(), plain);
    text.remove_prefix(plain - text.begin());
    if (text.empty()) break;
    const Utf8 first = FirstCharacter(text);
    const char* const escape =
        text[0] == '\0' ? nullptr : std::strchr(kMeant, text[0]);
    if (!first.valid) {
      out->append(kReplacement);
    } else if (escape != nullptr) {
      out->append({'\\', kEscaped[escape - kMeant]});
    } else if (absl::ascii_iscntrl(text[0]) && text[0] != '\x7f') {
      absl::StrAppendFormat(out, "\\u%04x", text[0]);
    } else {
      out->append(text.data(), first.bytes);
    }
    text.remove_prefix(first.bytes);
  }
  out->push_back('"');
}

bool IsJson(absl::string_view text) {
  JsonCursor cursor(text);
  cursor.SkipSpace();
  if (cursor.Value().empty()) return false;
  cursor.SkipSpace();
  return cursor.rest().empty();
}

bool JsonCursor::Take(absl::string_view text) {
  if (static_cast<size_t>(end_ - at_) < text.size() ||
      std::memcmp(at_, text.data(), text.size()) != 0) {
    return false;
  }
  at_ += text.size();
  return true;
}

void JsonCursor::SkipSpace() {
  while (at_ != end_ &&
         (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) {
    ++at_;
  }
}

bool JsonCursor::String(std::string* out, bool* plain) {
  if (Peek() != '"') return false;
  const char* at = at_ + 1;
  out->clear();
  while (true) {
    const char* const stop = std::find_if_not(at, end_, IsPlain);
    out->append(at, stop - at);
    if (stop == end_) return false;
    at = stop;
    if (*at == '"') break;
    *plain = false;
    if (*at != '\\') {
      out->push_back(*at++);
      continue;
    }
    absl::string_view escape(at, end_ - at);
    if (!TakeEscape(&escape, out)) return false;
    at = escape.data();
  }
  at_ = at + 1;
  return true;
}

bool JsonCursor::Integer(int64_t* out) {
  bool whole = false;
  const char* const end = NumberEnd(at_, end_, &whole);
  if (end == nullptr || !whole) return false;
  const std::from_chars_result read = std::from_chars(at_, end, *out);
  if (read.ec != std::errc()) return false;
  at_ = end;
  return true;
}

bool JsonCursor::Number(double* out) {
  bool whole = false;
  const char* const end = NumberEnd(at_, end_, &whole);
  if (end == nullptr) return false;
  const std::from_chars_result read = std::from_chars(at_, end, *out);
  if (read.ec != std::errc()) return false;
  at_ = end;
  return true;
}

bool JsonCursor::SkipString() {
  if (!Take('"')) return false;
  std::string ignored;
  while (at_ != end_ && *at_ != '"') {
    absl::string_view text = rest();
    if (*at_ == '\\') {
      if (!TakeEscape(&text, &ignored)) return false;
      at_ = text.data();
      continue;
    }
    const Utf8 first = FirstCharacter(text);
    if (!first.valid || static_cast<unsigned char>(*at_) < ' ') return false;
    at_ += first.bytes;
  }
  return Take('"');
}

absl::string_view JsonCursor::Value(int depth) {
  const char* const begin = at_;
  const auto value = [this, depth] { return !Value(depth + 1).empty(); };
  const auto member = [this, &value] {
    if (!SkipString()) return false;
    SkipSpace();
    if (!Take(':')) return false;
    SkipSpace();
    return value();
  };
  bool is_json = false;
  switch (depth < kDeepest ? Peek() : '\0') {
    case '{':
      is_json = ForEach('{', '}', member);
      break;
    case '[':
      is_json = ForEach('[', ']', value);
      break;
    case '"':
      is_json = SkipString();
      break;
    case 't':
      is_json = Take("true");
      break;
    case 'f':
      is_json = Take("false");
      break;
    case 'n':
      is_json = Take("null");
      break;
    case '\0':
      break;
    default: {
      bool whole = false;
      const char* const end = NumberEnd(at_, end_, &whole);
      is_json = end != nullptr;
      if (is_json) at_ = end;
    }
  }
  if (!is_json) at_ = begin;
  return {begin, static_cast<size_t>(at_ - begin)};
}

}  // namespace rankwise

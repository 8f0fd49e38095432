#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace rankwise::fuzz {
namespace {

// A half-open range of a text.
struct Range {
  size_t begin = 0, end = 0;

  std::string Of(const std::string& text) const {
    return text.substr(begin, end - begin);
  }
};

// Replacements of numbers and words.
constexpr const char* kExtremes[] = {"-1",
                                     "0",
                                     "1",
                                     "2",
                                     "3",
                                     "-0",
                                     "1.5",
                                     "007",
                                     "255",
                                     "65536",
                                     "1000000",
                                     "2147483647",
                                     "2147483648",
                                     "4294967296",
                                     "1000000000000",
                                     "4611686018427387904",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "-9223372036854775808",
                                     "18446744073709551615",
                                     "18446744073709551616",
                                     "1e-320",
                                     "1e18",
                                     "1e19",
                                     "1e308",
                                     "-1e308",
                                     "1e309",
                                     "0.1",
                                     "NaN",
                                     "nan",
                                     "inf",
                                     "-inf",
                                     "Infinity",
                                     "\"NaN\"",
                                     "\"Infinity\"",
                                     "0x10",
                                     "",
                                     "\"\"",
                                     "null",
                                     "true",
                                     "[]",
                                     "{}",
                                     "[0]",
                                     "[0,0]",
                                     "\"\\u0000\\n\\u001b[2J\"",
                                     "\x1b[2J",
                                     "\xff\xfe",
                                     "\xc3\xa9",
                                     "\xef\xbb\xbf",
                                     "%s%n",
                                     "../..",
                                     "--",
                                     "\r\n",
                                     "#"};

bool IsWord(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
         c == '-' || c == '+';
}

// Returns the word around `at`, or the single character there.
Range TokenAt(const std::string& text, size_t at) {
  Range token = {at, at + 1};
  if (!IsWord(text[at])) return token;
  while (token.begin > 0 && IsWord(text[token.begin - 1])) --token.begin;
  while (token.end < text.size() && IsWord(text[token.end])) ++token.end;
  return token;
}

// Returns the JSON value that begins at `at`, up to the comma or bracket after
// it.
Range ValueAt(const std::string& text, size_t at) {
  int depth = 0;
  bool quoted = false;
  size_t end = at;
  for (; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '"' && (end == 0 || text[end - 1] != '\\')) quoted = !quoted;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (depth == 0 && (c == ',' || c == ']' || c == '}' || c == '\n')) break;
    if (c == ']' || c == '}') --depth;
  }
  return {at, end};
}

void Replace(std::string& text, const Range& range, absl::string_view with) {
  text.replace(range.begin, range.end - range.begin, with.data(), with.size());
}

std::string Repeated(absl::string_view text, size_t count) {
  std::string repeated;
  for (size_t i = 0; i < count; ++i) repeated.append(text.data(), text.size());
  return repeated;
}

}  // namespace

Mutator::Mutator(uint64_t seed, uint64_t number) {
  std::seed_seq both{seed, seed >> 32, number, number >> 32};
  random_.seed(both);
}

size_t Mutator::Below(size_t bound) {
  return bound == 0 ? 0 : static_cast<size_t>(random_() % bound);
}

std::string Mutator::Mutate(std::string text,
                            const std::vector<std::string>& others) {
  const size_t changes = size_t{1} << Below(4);
  for (size_t i = 0; i < changes; ++i) {
    MutateOnce(text, others);
    if (text.size() > kLargest) text.resize(kLargest);
  }
  return text;
}

void Mutator::MutateOnce(std::string& text,
                         const std::vector<std::string>& others) {
  if (text.empty()) text = kExtremes[Below(std::size(kExtremes))];
  if (text.empty()) return;
  switch (Below(12)) {
    case 0:
      return ChangeBytes(text);
    case 1:
      return ChangeRange(text);
    case 2:
    case 3:
      return ChangeLines(text);
    case 4:
      return Below(8) == 0 ? Nest(text) : ChangeBytes(text);
    case 5:
      return Splice(text, others[Below(others.size())]);
    case 6:
    case 7:
    case 8:
      return ChangeValue(text);
    default:
      return ChangeToken(text, others);
  }
}

// Flips a bit, replaces a byte, or inserts one.
void Mutator::ChangeBytes(std::string& text) {
  const size_t at = Below(text.size());
  const char byte = static_cast<char>(Below(256));
  switch (Below(3)) {
    case 0:
      text[at] = static_cast<char>(text[at] ^ (1 << Below(8)));
      return;
    case 1:
      text[at] = byte;
      return;
    default:
      text.insert(at, 1, byte);
  }
}

// Truncates, removes or repeats a range.
void Mutator::ChangeRange(std::string& text) {
  const size_t begin = Below(text.size());
  const size_t size = 1 + Below(std::min<size_t>(text.size() - begin, 64));
  switch (Below(3)) {
    case 0:
      text.resize(begin);
      return;
    case 1:
      text.erase(begin, size);
      return;
    default:
      text.insert(begin, Repeated(text.substr(begin, size),
                                  Below(8) == 0 ? Below(4096) : 1));
  }
}

// Removes, repeats or exchanges lines.
void Mutator::ChangeLines(std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const size_t one = Below(lines.size()), other = Below(lines.size());
  switch (Below(3)) {
    case 0:
      lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(one));
      break;
    case 1:
      lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(other),
                   std::string(lines[one]));
      break;
    default:
      std::swap(lines[one], lines[other]);
  }
  text = absl::StrJoin(lines, "\n");
}

// Replaces a word by an extreme, or by a word of another file of the same kind.
void Mutator::ChangeToken(std::string& text,
                          const std::vector<std::string>& others) {
  const Range token = TokenAt(text, Below(text.size()));
  const std::string& other = others[Below(others.size())];
  if (Below(2) == 0 && !other.empty()) {
    Replace(text, token, TokenAt(other, Below(other.size())).Of(other));
  } else {
    Replace(text, token, kExtremes[Below(std::size(kExtremes))]);
  }
}

// Replaces a JSON value, or the text after the next '=' or ':', by an extreme
// or by another value of the text.
void Mutator::ChangeValue(std::string& text) {
  const auto value_after = [&](size_t from) {
    const size_t sign = text.find_first_of(":=[,", from);
    return sign == std::string::npos ? Range{from, from}
                                     : ValueAt(text, sign + 1);
  };
  const Range value = value_after(Below(text.size()));
  const std::string other = value_after(Below(text.size())).Of(text);
  Replace(text, value,
          Below(2) == 0 ? absl::string_view(other)
                        : kExtremes[Below(std::size(kExtremes))]);
}

// Inserts deeply nested values, closed or not.
void Mutator::Nest(std::string& text) {
  const size_t depth = size_t{1} << Below(18);
  const bool array = Below(2) == 0;
  std::string nested = Repeated(array ? "[" : "{\"a\":", depth) + "0";
  if (Below(2) == 0) nested += Repeated(array ? "]" : "}", depth);
  const size_t sign = text.find_first_of(":=,", Below(text.size()));
  const size_t at = sign == std::string::npos ? Below(text.size()) : sign + 1;
  Replace(text, ValueAt(text, at), nested);
}

// Joins the start of one text and the end of the other.
void Mutator::Splice(std::string& text, const std::string& other) {
  if (other.empty()) return;
  text.resize(Below(text.size()));
  text += other.substr(Below(other.size()));
}

}  // namespace rankwise::fuzz

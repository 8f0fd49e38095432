#include "records/field_scanner.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace rankwise {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Stands for itself in a JSON string, and is a whole character.
bool IsPlain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

// Where the JSON number at `at` ends; null: there is none, or one that reads
// differently as a double and as JSON (-0 is the integer 0).
const char* NumberEnd(const char* at, const char* end) {
  const bool negative = at != end && *at == '-';
  if (negative) ++at;
  if (at == end || !IsDigit(*at)) return nullptr;
  const bool zero = *at++ == '0';
  if (!zero) at = std::find_if_not(at, end, IsDigit);
  bool whole = true;
  if (at != end && *at == '.') {
    whole = false;
    if (++at == end || !IsDigit(*at)) return nullptr;
    at = std::find_if_not(at, end, IsDigit);
  }
  if (at != end && (*at == 'e' || *at == 'E')) {
    whole = false;
    if (++at != end && (*at == '+' || *at == '-')) ++at;
    if (at == end || !IsDigit(*at)) return nullptr;
    at = std::find_if_not(at, end, IsDigit);
  }
  return negative && zero && whole ? nullptr : at;
}

}  // namespace

bool FieldScanner::Take(char c) {
  if (at_ == end_ || *at_ != c) return false;
  ++at_;
  return true;
}

bool FieldScanner::Take(absl::string_view text) {
  if (static_cast<size_t>(end_ - at_) < text.size() ||
      std::memcmp(at_, text.data(), text.size()) != 0) {
    return false;
  }
  at_ += text.size();
  return true;
}

bool FieldScanner::Name(absl::string_view name) {
  if (!ok_) return false;
  ok_ = (first_ || Take(',')) && Take('"') && Take(name) && Take("\":");
  first_ = false;
  return ok_;
}

bool FieldScanner::Has(const char* name) {
  if (!ok_) return false;
  const char* const before = at_;
  const bool first = first_;
  const bool has = Name(name);
  at_ = before;
  first_ = first;
  ok_ = true;
  return has;
}

bool FieldScanner::Quoted(absl::string_view& out) {
  if (!Take('"')) return false;
  const char* close = std::find_if_not(at_, end_, IsPlain);
  out = absl::string_view(at_, close - at_);
  at_ = close;
  return Take('"');
}

bool FieldScanner::Integer(int64_t& out) {
  const char* end = NumberEnd(at_, end_);
  if (end == nullptr) return false;
  const std::from_chars_result read = std::from_chars(at_, end, out);
  at_ = end;
  return read.ec == std::errc() && read.ptr == end;
}

bool FieldScanner::Real(double& out) {
  const char* end = NumberEnd(at_, end_);
  if (end == nullptr) return false;
  const std::from_chars_result read = std::from_chars(at_, end, out);
  at_ = end;
  return read.ec == std::errc() && read.ptr == end;
}

void FieldScanner::Text(const char* name, std::string& out) {
  absl::string_view text;
  if (!Name(name)) return;
  if (!Quoted(text)) return GiveUp();
  out.assign(text.data(), text.size());
}

void FieldScanner::Flag(const char* name, bool& out) {
  if (!Name(name)) return;
  out = Take("true");
  if (!out && !Take("false")) GiveUp();
}

void FieldScanner::Choice(const char* name, std::string& out,
                          std::initializer_list<absl::string_view> choices) {
  Text(name, out);
  if (std::find(choices.begin(), choices.end(), out) == choices.end()) {
    GiveUp();
  }
}

void FieldScanner::Count(const char* name, int64_t& out, int64_t minimum) {
  if (!Name(name)) return;
  if (!Integer(out) || out < minimum) GiveUp();
}

void FieldScanner::CountList(const char* name, std::vector<int64_t>& out) {
  if (!Name(name)) return;
  ListOf([this, &out] {
    if (!Integer(out.emplace_back()) || out.back() < 0) GiveUp();
  });
}

void FieldScanner::Number(const char* name, double& out) {
  using Limits = std::numeric_limits<double>;
  if (!Name(name)) return;
  absl::string_view text;
  if (!Quoted(text)) {
    if (!Real(out)) GiveUp();
  } else if (text == "NaN") {
    out = Limits::quiet_NaN();
  } else if (text == "Infinity") {
    out = Limits::infinity();
  } else if (text == "-Infinity") {
    out = -Limits::infinity();
  } else {
    GiveUp();
  }
}

void FieldScanner::Seconds(const char* name, double& out) {
  if (!Name(name)) return;
  if (!Real(out) || out < 0) GiveUp();
}

void FieldScanner::SecondsList(const char* name, std::vector<double>& out) {
  if (!Name(name)) return;
  ListOf([this, &out] {
    if (!Real(out.emplace_back()) || out.back() < 0) GiveUp();
  });
}

void FieldScanner::Estimate(const char* name, double& out, double maximum) {
  if (!Name(name)) return;
  if (Take("\"NaN\"")) {
    out = std::numeric_limits<double>::quiet_NaN();
  } else if (!Real(out) || out < 0 || out > maximum) {
    GiveUp();
  }
}

}  // namespace rankwise

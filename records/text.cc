#include "records/text.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kKibi = 1024;

// Returns the factor of "", "B", "K", "KB" or "KiB", and so on; 0 for an
// unknown suffix.
int64_t FactorOf(absl::string_view suffix) {
  const std::string unit = absl::AsciiStrToUpper(suffix);
  int64_t factor = 1;
  if (unit.empty() || unit == "B") return factor;
  for (const char letter : {'K', 'M', 'G'}) {
    factor *= kKibi;
    const std::string name(1, letter);
    if (unit == name || unit == name + "B" || unit == name + "IB")
      return factor;
  }
  return 0;
}

}  // namespace

std::string Counted(int64_t number, absl::string_view thing) {
  return absl::StrCat(number, " ", thing, number == 1 ? "" : "s");
}

std::string DivisorsOf(int64_t number) {
  std::vector<int64_t> smaller;
  for (int64_t n = 1; n < number; ++n) {
    if (number % n == 0) smaller.push_back(n);
  }
  return absl::StrCat(absl::StrJoin(smaller, ", "),
                      smaller.empty() ? "" : " or ", number);
}

absl::StatusOr<int64_t> ParseBytes(absl::string_view text) {
  const size_t digits =
      std::min(text.find_first_not_of("0123456789"), text.size());
  const int64_t factor =
      FactorOf(absl::StripAsciiWhitespace(text.substr(digits)));
  int64_t number = 0;
  if (factor == 0 || !absl::SimpleAtoi(text.substr(0, digits), &number) ||
      number < 1 || number > std::numeric_limits<int64_t>::max() / factor) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text,
                     "\" is no size; sizes look like 8, 4K, 64M or 1G, in "
                     "powers of 1024"));
  }
  return number * factor;
}

absl::StatusOr<std::vector<int64_t>> ParseByteList(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(const int64_t size, ParseBytes(part));
    sizes.push_back(size);
  }
  return sizes;
}

std::string FormatBytes(int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {" B", " KiB", " MiB", " GiB"};
  double value = bytes;
  size_t unit = 0;
  while (value >= kKibi && unit + 1 < kUnits.size()) {
    value /= kKibi;
    ++unit;
  }
  return absl::StrCat(value, kUnits[unit]);
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace rankwise

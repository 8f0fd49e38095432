#include "comm_bench/sweep/sizes.h"

#include <algorithm>
#include <array>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rankwise::comm_bench {
namespace {

constexpr int64_t kKibi = 1024;

// The factor of "", "B", "K", "KB" or "KiB", and so on; 0 for what is none.
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
    const absl::StatusOr<int64_t> size = ParseBytes(part);
    if (!size.ok()) return size.status();
    sizes.push_back(*size);
  }
  return sizes;
}

std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor) {
  std::vector<int64_t> sizes;
  for (double size = min; size < max; size *= factor) {
    const int64_t rounded = static_cast<int64_t>(size);
    if (sizes.empty() || rounded > sizes.back()) sizes.push_back(rounded);
  }
  sizes.push_back(max);
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

}  // namespace rankwise::comm_bench

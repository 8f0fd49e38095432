#include "comm_bench/cuda/byte_pattern.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace rankwise::micro {
namespace {

// The finaliser of MurmurHash3 (A. Appleby).
uint32_t Mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  return x ^ (x >> 16);
}

const std::vector<uint8_t>& PatternBytes() {
  static const auto& bytes = *[] {
    auto* filled = new std::vector<uint8_t>(kPatternPeriod);
    for (int64_t i = 0; i < kPatternPeriod; ++i) (*filled)[i] = Mix(i) >> 24;
    return filled;
  }();
  return bytes;
}

// Of one period, from the byte that `index` falls on.
absl::Span<const uint8_t> PeriodFrom(int64_t index) {
  return absl::MakeConstSpan(PatternBytes()).subspan(index % kPatternPeriod);
}

}  // namespace

void FillPattern(int64_t first, absl::Span<uint8_t> bytes) {
  while (!bytes.empty()) {
    const absl::Span<const uint8_t> period = PeriodFrom(first);
    const size_t count = std::min(period.size(), bytes.size());
    std::memcpy(bytes.data(), period.data(), count);
    bytes.remove_prefix(count);
    first += static_cast<int64_t>(count);
  }
}

absl::Status CheckPattern(int64_t first, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const absl::Span<const uint8_t> period = PeriodFrom(first);
    const size_t count = std::min(period.size(), bytes.size());
    const auto wrong =
        std::mismatch(bytes.begin(), bytes.begin() + count, period.begin());
    if (wrong.second != period.begin() + count) {
      return absl::DataLossError(
          absl::StrCat("byte ", first + (wrong.first - bytes.begin()), " is ",
                       *wrong.first, " and not ", *wrong.second));
    }
    bytes.remove_prefix(count);
    first += static_cast<int64_t>(count);
  }
  return absl::OkStatus();
}

const std::vector<int8_t>& PatternValues() {
  static const auto& values = *[] {
    constexpr int8_t kValues[] = {-2, -1, 1, 2};
    auto* filled = new std::vector<int8_t>(kPatternPeriod);
    for (int64_t i = 0; i < kPatternPeriod; ++i)
      (*filled)[i] = kValues[Mix(i) >> 30];
    return filled;
  }();
  return values;
}

int64_t PatternSum(int64_t count) {
  const std::vector<int8_t>& values = PatternValues();
  const auto sum = [&](int64_t first) {
    return std::accumulate(values.begin(), values.begin() + first, int64_t{0});
  };
  return count / kPatternPeriod * sum(kPatternPeriod) +
         sum(count % kPatternPeriod);
}

}  // namespace rankwise::micro

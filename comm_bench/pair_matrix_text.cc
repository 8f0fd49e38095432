#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/pair_matrix.h"

namespace rankwise::comm_bench {
namespace {

constexpr int kWidth = 10;

std::string Cell(double value) {
  return std::isnan(value) ? absl::StrFormat("%*s", kWidth, "-")
                           : absl::StrFormat("%*.*f", kWidth, 2, value);
}

std::string Table(const std::string& title,
                  const std::vector<std::vector<double>>& values,
                  double scale) {
  std::string text = title + "\n  rank";
  for (size_t column = 0; column < values.size(); ++column) {
    absl::StrAppend(&text, absl::StrFormat("%*d", kWidth, column));
  }
  absl::StrAppend(&text, "\n");
  for (size_t row = 0; row < values.size(); ++row) {
    absl::StrAppend(&text, absl::StrFormat("%6d", row));
    for (const double value : values[row]) {
      absl::StrAppend(&text, Cell(value * scale));
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

std::string FormatPairMatrix(const PairMatrix& matrix) {
  return Table("latency, us (half round trip)", matrix.latency_seconds, 1e6) +
         Table("bandwidth, GB/s", matrix.bandwidth_gb_per_s, 1);
}

}  // namespace rankwise::comm_bench

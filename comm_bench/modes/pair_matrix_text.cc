#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/modes/pair_matrix.h"

namespace rankwise::comm_bench {
namespace {

// "     45.00 +- 1.2%"; without an interval, "     45.00       ".
std::string Cell(double value, double reach) {
  if (std::isnan(value)) return absl::StrFormat("%18s", "-");
  const std::string interval =
      std::isnan(reach) ? "" : absl::StrFormat(" +-%4.1f%%", 100 * reach);
  return absl::StrFormat("%10.2f%-8s", value, interval);
}

std::string Table(const std::string& title,
                  const std::vector<std::vector<double>>& values,
                  const std::vector<std::vector<double>>& reaches,
                  double scale) {
  std::string text = title + "\n  rank";
  for (size_t column = 0; column < values.size(); ++column) {
    absl::StrAppend(&text, absl::StrFormat("%10d        ", column));
  }
  absl::StripTrailingAsciiWhitespace(&text);
  absl::StrAppend(&text, "\n");
  for (size_t row = 0; row < values.size(); ++row) {
    absl::StrAppend(&text, absl::StrFormat("%6d", row));
    for (size_t column = 0; column < values.size(); ++column) {
      absl::StrAppend(&text,
                      Cell(values[row][column] * scale, reaches[row][column]));
    }
    absl::StripTrailingAsciiWhitespace(&text);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

std::string FormatPairMatrix(const PairMatrix& matrix) {
  return Table("latency, us (half round trip), +- its 95 % interval",
               matrix.latency_seconds, matrix.latency_reach, 1e6) +
         Table("bandwidth, GB/s, +- its 95 % interval",
               matrix.bandwidth_gb_per_s, matrix.bandwidth_reach, 1);
}

}  // namespace rankwise::comm_bench

#include "comm_bench/collectives/traffic_matrix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "records/command_line.h"
#include "records/text.h"
#include "records/text_file.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

using Row = std::vector<double>;

double Sum(const Row& row) {
  return std::accumulate(row.begin(), row.end(), 0.0);
}

// A line of the file, for messages.
struct Line {
  std::string path;
  int number = 0;

  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("traffic matrix ", path, ":", number, ": ", what));
  }
};

absl::StatusOr<Row> ParseRow(const Line& line, absl::string_view text) {
  Row row;
  for (absl::string_view field :
       absl::StrSplit(text, absl::ByAnyChar(", \t"), absl::SkipEmpty())) {
    double weight = 0;
    if (!absl::SimpleAtod(field, &weight) || !std::isfinite(weight)) {
      return line.Error(absl::StrCat(Quoted(field), " is not a number"));
    }
    if (weight < 0) {
      return line.Error(absl::StrCat(weight,
                                     " is negative; nobody sends less "
                                     "than nothing"));
    }
    row.push_back(weight);
  }
  return row;
}

// Checks that `row` may follow the rows above it, the first of which is
// `first`.
absl::Status CheckRow(const Line& line, const Row& row, const Row& first,
                      int world_size) {
  if (row.size() != static_cast<size_t>(world_size)) {
    return line.Error(absl::StrCat(Counted(row.size(), "column"), " for ",
                                   Counted(world_size, "rank"),
                                   "; give one number for each"));
  }
  const double sum = Sum(row), expected = Sum(first);
  if (!std::isfinite(sum) || sum <= 0) {
    return line.Error(absl::StrCat("the row's sum is ", sum,
                                   "; every rank must send something"));
  }
  constexpr double kRounding = 1e-9;
  if (std::abs(sum - expected) > kRounding * expected) {
    return line.Error(absl::StrCat(
        "the matrix does not balance: this row's sum is ", sum,
        ", the first row's ", expected,
        "; every rank sends equally much, so all sums must be the same"));
  }
  return absl::OkStatus();
}

// Splits `count` in proportion to `weights`: the floors first, then one more
// for the largest remainders, low ranks first among equal ones.
std::vector<int64_t> LargestRemainder(const Row& weights, int64_t count) {
  const double sum = Sum(weights);
  std::vector<int64_t> parts;
  Row remainders;
  int64_t left = count;
  for (double weight : weights) {
    const double share = weight / sum * static_cast<double>(count);
    parts.push_back(std::min(static_cast<int64_t>(share), left));
    remainders.push_back(share - static_cast<double>(parts.back()));
    left -= parts.back();
  }
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return remainders[a] > remainders[b];
  });
  for (size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) {
    ++parts[order[i]];
  }
  return parts;
}

}  // namespace

absl::StatusOr<TrafficMatrix> TrafficMatrix::Read(const std::string& path,
                                                  int world_size) {
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot read the traffic matrix ", path, ": ",
        absl::StripPrefix(text.status().message(), "cannot be read: ")));
  }
  TrafficMatrix matrix;
  Line line{path, 0};
  for (absl::string_view numbers :
       absl::StrSplit(absl::StripSuffix(*text, "\n"), '\n')) {
    ++line.number;
    ASSIGN_OR_RETURN(Row row,
                     ParseRow(line, numbers.substr(0, numbers.find('#'))));
    if (row.empty()) continue;
    if (matrix.world_size() == world_size) {
      return line.Error(absl::StrCat("a row too many for ",
                                     Counted(world_size, "rank"),
                                     "; give one row for each"));
    }
    matrix.weights_.push_back(std::move(row));
    ++matrix.world_size_;
    RETURN_IF_ERROR(
        CheckRow(line, matrix.weights_.back(), matrix.weights_[0], world_size));
  }
  if (matrix.world_size() == world_size) return matrix;
  return line.Error(absl::StrCat(
      "the file ends after ", Counted(matrix.world_size(), "row"), ", for ",
      Counted(world_size, "rank"), "; give one row for each"));
}

TrafficMatrix TrafficMatrix::Skewed(double skew, int world_size) {
  Row row;
  for (int to = 0; to < world_size; ++to) {
    row.push_back(std::pow(to + 1, -skew));
  }
  TrafficMatrix matrix;
  matrix.weights_.push_back(std::move(row));
  matrix.world_size_ = world_size;
  return matrix;
}

std::vector<int64_t> TrafficMatrix::SendCounts(int from, int64_t count) const {
  return LargestRemainder(RowOf(from), count);
}

std::vector<int64_t> TrafficMatrix::ReceiveCounts(int to, int64_t count) const {
  std::vector<int64_t> counts;
  for (int from = 0; from < world_size(); ++from) {
    counts.push_back(SendCounts(from, count)[to]);
  }
  return counts;
}

double TrafficMatrix::BusiestShare() const {
  Row sent(world_size_), received(world_size_);
  for (int from = 0; from < world_size_; ++from) {
    const Row& row = RowOf(from);
    for (int to = 0; to < world_size_; ++to) {
      if (to == from) continue;
      const double share = row[to] / Sum(row);
      sent[from] += share;
      received[to] += share;
    }
  }
  return std::max(*std::max_element(sent.begin(), sent.end()),
                  *std::max_element(received.begin(), received.end()));
}

}  // namespace rankwise::comm_bench

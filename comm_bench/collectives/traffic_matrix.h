// Amounts sent between ranks in all_to_all_v.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_TRAFFIC_MATRIX_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_TRAFFIC_MATRIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise::comm_bench {

// Weights: row i is for the data sent by rank i, column j for the data received
// by rank j. A row of `count` elements is split by its weights (largest
// remainder, so the parts sum to count exactly).
class TrafficMatrix {
 public:
  // Reads a file: one line per rank, world_size non-negative numbers separated
  // by commas or blanks; '#' starts a comment. The matrix must balance: all
  // rows have the same sum, since every rank sends `count` elements.
  // InvalidArgument names file, line and error.
  static absl::StatusOr<TrafficMatrix> Read(const std::string& path,
                                            int world_size);
  // The weight of column j is (j + 1)^-skew: uniform for 0; for larger values,
  // low ranks receive more, like popular experts.
  static TrafficMatrix Skewed(double skew, int world_size);

  int world_size() const { return world_size_; }
  // Returns the elements from rank `from` to each rank.
  std::vector<int64_t> SendCounts(int from, int64_t count) const;
  // Returns the elements to rank `to` from each rank.
  std::vector<int64_t> ReceiveCounts(int to, int64_t count) const;
  // Returns the largest amount that one rank sends to others or receives from
  // them, in multiples of `count`: the load of the busiest direction of a link.
  // At most world_size - 1; (n - 1) / n for a uniform matrix of n ranks.
  double BusiestShare() const;

 private:
  const std::vector<double>& RowOf(int from) const {
    return weights_[weights_.size() == 1 ? 0 : from];
  }

  int world_size_ = 0;
  // The row of each rank; a single row applies to every rank.
  std::vector<std::vector<double>> weights_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_TRAFFIC_MATRIX_H_

// Who sends how much to whom in all_to_all_v.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_TRAFFIC_MATRIX_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_TRAFFIC_MATRIX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise::comm_bench {

// Weights: row i is what rank i sends, column j what rank j receives. A row of
// `count` elements is split by its weights (largest remainder, so that the
// parts add up to count exactly).
class TrafficMatrix {
 public:
  // From a file: one line per rank, world_size numbers separated by commas or
  // blanks, none negative; '#' starts a comment. The matrix must balance: all
  // rows have the same sum, since every rank sends `count` elements.
  // InvalidArgument names file, line and what is wrong.
  static absl::StatusOr<TrafficMatrix> Read(const std::string& path,
                                            int world_size);
  // The weight of column j is (j + 1)^-skew: 0 is uniform; above it, low ranks
  // receive more, as popular experts do.
  static TrafficMatrix Skewed(double skew, int world_size);

  int world_size() const { return world_size_; }
  // Elements from rank `from` to each rank.
  std::vector<int64_t> SendCounts(int from, int64_t count) const;
  // Elements to rank `to` from each rank.
  std::vector<int64_t> ReceiveCounts(int to, int64_t count) const;
  // The largest amount that one rank sends to others or receives from them, in
  // multiples of `count`: the load of the busiest direction of a link. At most
  // world_size - 1; (n - 1) / n for a uniform matrix of n ranks.
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

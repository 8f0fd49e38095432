// Data that a lost, doubled or shifted piece would show in.
#ifndef RANKWISE_COMM_BENCH_CUDA_BYTE_PATTERN_H_
#define RANKWISE_COMM_BENCH_CUDA_BYTE_PATTERN_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace rankwise::micro {

// Prime, so that no stride of a kernel's threads falls in step with it.
constexpr int64_t kPatternPeriod = 65521;

// Bytes `first`, `first` + 1, ... of the pattern for copies.
void FillPattern(int64_t first, absl::Span<uint8_t> bytes);

// DataLoss with the place of the first byte that is wrong.
absl::Status CheckPattern(int64_t first, absl::Span<const uint8_t> bytes);

// One period of the pattern for sums: -2, -1, 1 and 2 in no visible order.
// Partial sums in any order stay whole numbers below 2^24, so that float has
// them exactly, up to 2^30 values.
const std::vector<int8_t>& PatternValues();

// Of the first `count` values of the periods in a row.
int64_t PatternSum(int64_t count);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_BYTE_PATTERN_H_

// Contents of the ranks' buffers before a call, and the expected contents after
// it: integers small enough to be exact in every element type, including every
// partial result of a reduction in any order.
//
// The pattern repeats after a prime number of elements, so that it differs
// between the chunks into which algorithms divide a buffer. Within one period,
// with i the index modulo the period and W the number of ranks:
//   data        a pseudo-random number from 0 to 250 of (rank, i)
//   min, max    rank r contributes its data
//   sum         the ranks' contributions add up to a number from 0 to 250 that
//               depends on i alone; shares grow with (r + i) mod W
//   avg         the same, and the sum is a multiple of W
//   prod        rank r contributes 2 to its share of a number from 0 to 7
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_PATTERN_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_PATTERN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ATen/core/Tensor.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

inline constexpr int64_t kPatternPeriod = 4093;
// marks memory that a call must write; not a result of any call
inline constexpr int kUnwritten = 251;

// Returns the element at an index of the pattern, 0 <= index < kPatternPeriod.
using PatternValue = std::function<int64_t(int64_t index)>;

// Returns the data sent by rank `rank` in collectives that move data.
PatternValue DataOf(int rank);
// Returns the contribution of rank `call.rank` to a reduction by `call.op`.
// Supports up to 1024 ranks.
PatternValue ContributionOf(const Call& call);
// Returns the reduction over all ranks. An average in bfloat16 over more than
// 256 ranks, whose sum bfloat16 cannot represent, is 0, as are its
// contributions.
PatternValue ReductionOf(const Call& call);
// Returns the permitted relative error of the result: 0, except for averages on
// a GPU over a number of ranks that is not a power of two, since NCCL
// multiplies each contribution by the rounded 1 / W before it adds.
double ToleranceOf(const Call& call);

// Elements of a buffer that are consecutive in the pattern.
struct PatternRun {
  int64_t count = 0;
  int64_t first = 0;  // index of the run's first element
  PatternValue value = nullptr;
};

// Fills a contiguous tensor with `runs`, whose counts sum to its elements.
void Fill(const at::Tensor& tensor, const std::vector<PatternRun>& runs);
void FillUnwritten(const at::Tensor& tensor);

// Compares a contiguous tensor with `runs`. NaN counts as wrong.
std::optional<WrongElement> FindWrong(const at::Tensor& tensor,
                                      const std::vector<PatternRun>& runs,
                                      double tolerance = 0);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_PATTERN_H_

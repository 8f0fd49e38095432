#include "comm_bench/collectives/pattern.h"

#include <algorithm>
#include <cstring>

#include "ATen/ops/equal.h"
#include "ATen/ops/isclose.h"
#include "ATen/ops/ne.h"
#include "ATen/ops/tensor.h"
#include "absl/types/span.h"
#include "c10/core/ScalarType.h"

namespace rankwise::comm_bench {
namespace {

constexpr int64_t kLargest = 250;        // for data, sums and averages
constexpr int64_t kLargestExponent = 7;  // for products of twos

// Returns a number from 0 to `largest`, evenly distributed over keys (the
// finalizer of splitmix64; Steele, Lea and Flood 2014).
int64_t Scrambled(int64_t key, int64_t largest) {
  uint64_t x = (static_cast<uint64_t>(key) + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  x ^= x >> 31;
  return static_cast<int64_t>(x % static_cast<uint64_t>(largest + 1));
}

int64_t Data(int64_t rank, int64_t index) {
  return Scrambled((rank + 1) * kPatternPeriod + index, kLargest);
}

// Returns `rank`'s share of `total` at `index`; the shares of all ranks sum to
// it.
int64_t ShareOf(int64_t total, int64_t rank, int64_t index,
                int64_t world_size) {
  const int64_t place = (rank + index) % world_size;
  const int64_t all = world_size * (world_size + 1);
  return total * (place + 1) * (place + 2) / all -
         total * place * (place + 1) / all;
}

// An average is exact if the sum, and every partial sum, is a small multiple of
// a unit that divides the number of ranks: W = unit * odd.
struct AveragePlan {
  int64_t unit = 1;
  int64_t odd = 1;
  int64_t largest = 0;  // average
};

AveragePlan PlanAverage(const Call& call) {
  constexpr int64_t kExactInBFloat16 = 256, kExactInHalf = 2048;
  constexpr int64_t kLargestSum = 32768;  // float16 ends at 65504
  AveragePlan plan;
  plan.unit = call.world_size & -call.world_size;
  plan.odd = call.world_size / plan.unit;
  const int64_t exact =
      call.dtype == c10::ScalarType::BFloat16 ? kExactInBFloat16 : kExactInHalf;
  const int64_t largest_sum = std::min(exact * plan.unit, kLargestSum);
  plan.largest = std::min(largest_sum / call.world_size, kLargest);
  return plan;
}

int64_t SmallestOrLargest(const Call& call, int64_t index) {
  int64_t result = Data(0, index);
  for (int rank = 1; rank < call.world_size; ++rank) {
    const int64_t next = Data(rank, index);
    result = call.op == ReduceOp::MIN ? std::min(result, next)
                                      : std::max(result, next);
  }
  return result;
}

using Runs = absl::Span<const PatternRun>;

// Returns the elements of each run, at most one period of each, one after the
// other in the type of `tensor`.
at::Tensor PeriodsOf(Runs runs, const at::Tensor& tensor) {
  std::vector<int64_t> values;
  for (const PatternRun& run : runs) {
    const int64_t count = std::min(run.count, kPatternPeriod);
    for (int64_t i = 0; i < count; ++i)
      values.push_back(run.value((run.first + i) % kPatternPeriod));
  }
  return at::tensor(values, at::kLong).to(tensor.options());
}

int64_t ElementsOf(Runs runs) {
  int64_t count = 0;
  for (const PatternRun& run : runs) count += run.count;
  return count;
}

// Returns the first runs that together are at most a period long, at least one:
// runs of thousands of ranks form few pieces.
Runs FirstPiece(Runs runs) {
  size_t size = 1;
  int64_t count = runs[0].count;
  while (size < runs.size() && count + runs[size].count <= kPatternPeriod)
    count += runs[size++].count;
  return runs.first(size);
}

// Calls piece(part of `elements`, its pattern, its first index in `elements`)
// for all whole periods of a run, as rows, and for its rest; or once for
// several runs of one period at most.
template <typename Piece>
void ForEachPiece(const at::Tensor& elements, Runs runs, Piece piece) {
  const int64_t count = elements.numel();
  if (count == 0) return;
  const at::Tensor period = PeriodsOf(runs, elements);
  const int64_t rows = count / kPatternPeriod;
  const int64_t whole = rows * kPatternPeriod;
  if (rows > 0) {
    const at::Tensor part =
        elements.narrow(0, 0, whole).view({rows, kPatternPeriod});
    piece(part, period.expand_as(part), 0);
  }
  if (whole < count) {
    const int64_t rest = count - whole;
    piece(elements.narrow(0, whole, rest), period.narrow(0, 0, rest), whole);
  }
}

// Iterates over `tensor` piece by piece.
template <typename Piece>
void ForEachPiece(const at::Tensor& tensor, const std::vector<PatternRun>& runs,
                  Piece piece) {
  const at::Tensor elements = tensor.view({-1});
  int64_t begin = 0;
  for (Runs left = runs; !left.empty();) {
    const Runs next = FirstPiece(left);
    const int64_t count = ElementsOf(next);
    ForEachPiece(elements.narrow(0, begin, count), next,
                 [&](const at::Tensor& part, const at::Tensor& pattern,
                     int64_t offset) { piece(part, pattern, begin + offset); });
    begin += count;
    left.remove_prefix(next.size());
  }
  TORCH_CHECK(begin == elements.numel(), "a pattern of ", begin,
              " elements for a tensor of ", elements.numel());
}

// Whether a piece has the bytes of the pattern: one pass over a CPU's memory,
// for any type.
bool Same(const at::Tensor& got, const at::Tensor& expected) {
  if (!got.is_cpu()) return at::equal(got, expected);
  const size_t row_bytes = expected.size(-1) * expected.element_size();
  const auto* row = static_cast<const char*>(got.const_data_ptr());
  const char* const end = row + got.nbytes();
  for (; row != end; row += row_bytes) {
    if (std::memcmp(row, expected.const_data_ptr(), row_bytes) != 0) {
      return false;
    }
  }
  return true;
}

std::optional<WrongElement> FindWrongIn(const at::Tensor& got,
                                        const at::Tensor& expected,
                                        double tolerance) {
  if (Same(got, expected)) return std::nullopt;
  at::Tensor differs =
      tolerance == 0
          ? at::ne(got, expected)
          : at::isclose(got, expected, tolerance, /*atol=*/0).logical_not();
  differs = differs.to(at::kCPU);
  const bool* begin = differs.data_ptr<bool>();
  const bool* end = begin + differs.numel();
  const int64_t index = std::find(begin, end, true) - begin;
  if (index == differs.numel()) return std::nullopt;
  const int64_t row = index / got.size(-1), column = index % got.size(-1);
  auto element = [&](const at::Tensor& tensor) {
    return (tensor.dim() == 1 ? tensor[column] : tensor[row][column])
        .item()
        .toDouble();
  };
  return WrongElement{.index = index,
                      .expected = element(expected),
                      .got = element(got),
                      .total = std::count(begin, end, true)};
}

}  // namespace

PatternValue DataOf(int rank) {
  return [rank](int64_t index) { return Data(rank, index); };
}

PatternValue ContributionOf(const Call& call) {
  auto share = [call](int64_t total, int64_t index) {
    return ShareOf(total, call.rank, index, call.world_size);
  };
  switch (call.op) {
    case ReduceOp::SUM:
      return [share](int64_t i) { return share(Scrambled(i, kLargest), i); };
    case ReduceOp::AVG:
      return [share, plan = PlanAverage(call)](int64_t i) {
        return plan.unit * share(plan.odd * Scrambled(i, plan.largest), i);
      };
    case ReduceOp::PRODUCT:
      return [share](int64_t i) {
        return int64_t{1} << share(Scrambled(i, kLargestExponent), i);
      };
    default:  // MIN and MAX
      return DataOf(call.rank);
  }
}

PatternValue ReductionOf(const Call& call) {
  switch (call.op) {
    case ReduceOp::SUM:
      return [](int64_t i) { return Scrambled(i, kLargest); };
    case ReduceOp::AVG:
      return [largest = PlanAverage(call).largest](int64_t i) {
        return Scrambled(i, largest);
      };
    case ReduceOp::PRODUCT:
      return [](int64_t i) {
        return int64_t{1} << Scrambled(i, kLargestExponent);
      };
    default:  // MIN and MAX
      return [call](int64_t i) { return SmallestOrLargest(call, i); };
  }
}

double ToleranceOf(const Call& call) {
  const bool power_of_two = (call.world_size & (call.world_size - 1)) == 0;
  if (call.op != ReduceOp::AVG || !call.device.is_cuda() || power_of_two) {
    return 0;
  }
  const double epsilon = call.dtype == at::kBFloat16 ? 0x1p-7
                         : call.dtype == at::kHalf   ? 0x1p-10
                         : call.dtype == at::kFloat  ? 0x1p-23
                                                     : 0x1p-52;
  // 1 / W and each product are rounded once, and so is every addition.
  return epsilon / 2 * (call.world_size + 1);
}

void Fill(const at::Tensor& tensor, const std::vector<PatternRun>& runs) {
  ForEachPiece(tensor, runs,
               [](const at::Tensor& part, const at::Tensor& pattern, int64_t) {
                 part.copy_(pattern);
               });
}

void FillUnwritten(const at::Tensor& tensor) { tensor.fill_(kUnwritten); }

std::optional<WrongElement> FindWrong(const at::Tensor& tensor,
                                      const std::vector<PatternRun>& runs,
                                      double tolerance) {
  std::optional<WrongElement> first;
  ForEachPiece(
      tensor, runs,
      [&](const at::Tensor& part, const at::Tensor& pattern, int64_t begin) {
        const auto wrong = FindWrongIn(part, pattern, tolerance);
        if (!wrong) return;
        if (first) {
          first->total += wrong->total;
          return;
        }
        first = wrong;
        first->index += begin;
      });
  return first;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/collectives/pattern.h"

#include <limits>

#include "ATen/TensorOperators.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/collective.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

constexpr int kWorldSizes[] = {1, 2, 3, 4, 5, 7, 12, 64, 100, 257, 768, 1024};

Call CallOf(ReduceOp op, c10::ScalarType dtype, int rank, int world_size) {
  Call call;
  call.op = op;
  call.dtype = dtype;
  call.rank = rank;
  call.world_size = world_size;
  return call;
}

// Returns the contributions of all ranks to the elements of a short tensor,
// combined in `dtype` from the last rank to the first.
at::Tensor Reduced(ReduceOp op, c10::ScalarType dtype, int world_size,
                   int64_t count) {
  at::Tensor result;
  for (int rank = world_size - 1; rank >= 0; --rank) {
    at::Tensor next = at::empty({count}, dtype);
    Fill(next,
         {{count, 0, ContributionOf(CallOf(op, dtype, rank, world_size))}});
    if (!result.defined()) {
      result = next;
    } else if (op == ReduceOp::MIN) {
      result = result.minimum(next);
    } else if (op == ReduceOp::MAX) {
      result = result.maximum(next);
    } else {
      result = op == ReduceOp::PRODUCT ? result * next : result + next;
    }
  }
  return op == ReduceOp::AVG ? result / world_size : result;
}

// Counts the elements in which two ranks' values agree.
int64_t Agreeing(const PatternValue& a, const PatternValue& b,
                 int64_t shift = 0) {
  int64_t agreeing = 0;
  for (int64_t i = 0; i + shift < kPatternPeriod; ++i) {
    agreeing += a(i) == b(i + shift);
  }
  return agreeing;
}

TEST(PatternTest, EveryReductionIsExactInEveryTypeAtEveryWorldSize) {
  int64_t checked = 0;
  for (const int world_size : kWorldSizes) {
    for (const c10::ScalarType dtype : AllDtypes()) {
      for (const ReduceOp op : AllOps()) {
        const bool average = op == ReduceOp::AVG;
        if (average && !c10::isFloatingType(dtype)) continue;
        SCOPED_TRACE(absl::StrCat(OpName(op), " of ", DtypeName(dtype),
                                  " over ", world_size));
        const int64_t count = 101;
        const at::Tensor result = Reduced(op, dtype, world_size, count);
        const Call call = CallOf(op, dtype, 0, world_size);
        EXPECT_FALSE(FindWrong(result, {{count, 0, ReductionOf(call)}}));
        ++checked;
      }
    }
  }
  EXPECT_EQ(checked, 12 * (7 * 5 - 3));
}

TEST(PatternTest, NoResultIsWhatStandsForUnwritten) {
  for (const int world_size : kWorldSizes) {
    for (const ReduceOp op : AllOps()) {
      const auto value =
          ReductionOf(CallOf(op, c10::ScalarType::Float, 0, world_size));
      for (int64_t i = 0; i < kPatternPeriod; ++i) {
        ASSERT_TRUE(value(i) >= 0 && value(i) < kUnwritten) << OpName(op);
      }
    }
  }
}

TEST(PatternTest, RanksAndShiftedDataDiffer) {
  const int64_t by_chance = kPatternPeriod / 251 * 2;
  for (const int rank : {1, 2, 250, 251, 1023}) {
    EXPECT_LT(Agreeing(DataOf(0), DataOf(rank)), by_chance) << rank;
  }
  for (const int64_t shift : {1, 2, 128, 251, 1024}) {
    EXPECT_LT(Agreeing(DataOf(3), DataOf(3), shift), by_chance) << shift;
  }
}

TEST(PatternTest, LeavingOutOrDoublingARankIsSeen) {
  for (const int world_size : {2, 3, 4, 8}) {
    for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::AVG}) {
      const auto zero =
          ContributionOf(CallOf(op, c10::ScalarType::Float, 0, world_size));
      const auto last = ContributionOf(
          CallOf(op, c10::ScalarType::Float, world_size - 1, world_size));
      EXPECT_LT(Agreeing(zero, last), kPatternPeriod / 2) << world_size;
      EXPECT_LT(Agreeing(zero, [](int64_t) { return 0; }), kPatternPeriod / 2);
    }
  }
}

TEST(PatternTest, FillsAndFindsAcrossPeriodsAndRuns) {
  const int64_t count = 3 * kPatternPeriod + 17;
  for (const c10::ScalarType dtype : AllDtypes()) {
    at::Tensor tensor = at::empty({2 * count + 5}, dtype);
    const std::vector<PatternRun> runs = {{count, 0, DataOf(1)},
                                          {0, 0, DataOf(9)},
                                          {5, kPatternPeriod - 2, DataOf(2)},
                                          {count, 100000, DataOf(3)}};
    Fill(tensor, runs);
    EXPECT_FALSE(FindWrong(tensor, runs)) << DtypeName(dtype);
    EXPECT_EQ(tensor[kPatternPeriod + 3].item<int64_t>(), DataOf(1)(3));
    EXPECT_EQ(tensor[count + 3].item<int64_t>(), DataOf(2)(1));
    EXPECT_EQ(tensor[count + 5 + 7].item<int64_t>(),
              DataOf(3)(100007 % kPatternPeriod));
  }
}

TEST(PatternTest, FindsTheFirstWrongElementAndCountsAll) {
  const int64_t count = 2 * kPatternPeriod + 100;
  for (const c10::ScalarType dtype : AllDtypes()) {
    at::Tensor tensor = at::empty({2 * count}, dtype);
    const std::vector<PatternRun> runs = {{count, 0, DataOf(0)},
                                          {count, 0, DataOf(1)}};
    Fill(tensor, runs);
    const int64_t first = kPatternPeriod + 5;
    for (const int64_t i : {first, 2 * kPatternPeriod + 99, count}) {
      tensor[i].fill_(252);
    }
    const auto wrong = FindWrong(tensor, runs);
    ASSERT_TRUE(wrong) << DtypeName(dtype);
    EXPECT_EQ(wrong->index, first);
    EXPECT_EQ(wrong->expected, DataOf(0)(5));
    EXPECT_EQ(wrong->got, 252);
    EXPECT_EQ(wrong->total, 3);
  }
}

TEST(PatternTest, SmallDifferencesCountAndSoDoesNaN) {
  at::Tensor tensor = at::empty({4}, at::kDouble);
  const std::vector<PatternRun> runs = {{4, 0, DataOf(0)}};
  Fill(tensor, runs);
  tensor[2].fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(FindWrong(tensor, runs)->index, 2);
  EXPECT_EQ(FindWrong(tensor, runs, /*tolerance=*/0.5)->index, 2);
  Fill(tensor, runs);
  tensor[1].add_(1e-9);
  EXPECT_EQ(FindWrong(tensor, runs)->index, 1);
  EXPECT_FALSE(FindWrong(tensor, runs, /*tolerance=*/1e-6));
}

TEST(PatternTest, OnlyAveragesThatNcclRoundsGetATolerance) {
  Call call = CallOf(ReduceOp::AVG, c10::ScalarType::BFloat16, 0, 3);
  EXPECT_EQ(ToleranceOf(call), 0);
  call.device = c10::Device(c10::kCUDA, 0);
  EXPECT_EQ(ToleranceOf(call), 4 * 0x1p-8);
  call.op = ReduceOp::SUM;
  EXPECT_EQ(ToleranceOf(call), 0);
  call.op = ReduceOp::AVG;
  call.world_size = 4;
  EXPECT_EQ(ToleranceOf(call), 0);
}

TEST(PatternTest, APatternOfAnotherLengthIsRefused) {
  const at::Tensor tensor = at::zeros({4});
  EXPECT_ANY_THROW(FindWrong(tensor, {{3, 0, DataOf(0)}}));
}

}  // namespace
}  // namespace rankwise::comm_bench

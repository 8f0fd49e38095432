#include "comm_bench/modes/units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"
#include "records/record_json.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kCount = 1 << 18;  // 1 MiB of float32
constexpr int64_t kIterations = 6;

std::vector<Unit> Units(int number, int rank, double compute_seconds) {
  const Call call{.count = kCount, .rank = rank, .world_size = 2};
  return std::vector<Unit>(
      number,
      {.gather = call, .reduce = call, .compute_seconds = compute_seconds});
}

// Virtual time: three units on two ranks, with calls of 10 ms, however many are
// concurrent, and forward computations of 20 ms.
UnitsResult Measure(int stage, int prefetch) {
  UnitsResult result;
  OnFakeRanks(2, {.alpha_us = 10e3}, [&](FakeRank& rank) {
    VirtualTime time;
    const UnitsConfig config = {
        .stage = stage,
        .prefetch = prefetch,
        .iterations = kIterations,
        .compute = [&](double seconds) { time.Advance(seconds); }};
    const UnitsResult mine = RunUnits(
        *rank.group, rank.control, Units(3, rank.control.rank(), 0.02), config);
    if (rank.control.rank() == 0) result = mine;
  });
  return result;
}

std::vector<double> StepMilliseconds(const UnitsResult& result) {
  std::vector<double> milliseconds;
  for (const UnitsWay& way : result.ways) {
    milliseconds.push_back(way.step.value * 1e3);
    for (const double seconds : way.own.seconds)
      EXPECT_NEAR(seconds, way.step.value, 1e-9);
  }
  return milliseconds;
}

auto Are(double computing, double without, double with) {
  constexpr double kRounding = 1e-6;
  return ElementsAre(testing::DoubleNear(computing, kRounding),
                     testing::DoubleNear(without, kRounding),
                     testing::DoubleNear(with, kRounding));
}

// Without prefetch every gather is exposed: three in forward, and two in
// backward, after the reduction that was started just before. With prefetch
// only the first one is. Backward hides all reductions but the last.
TEST(UnitsTest, Zero3GathersTwiceAndPrefetchHidesAllButTheFirst) {
  const UnitsResult result = Measure(/*stage=*/3, /*prefetch=*/1);
  EXPECT_THAT(StepMilliseconds(result),
              Are(180, 180 + 3 * 10 + 2 * 20 + 10, 180 + 10 + 10));
  EXPECT_EQ(result.iterations, kIterations);
  EXPECT_EQ(result.sent_bytes, (5 + 3) * kCount * 4 / 2) << "half of each";
}

TEST(UnitsTest, Zero2GathersOnce) {
  const UnitsResult result = Measure(/*stage=*/2, /*prefetch=*/1);
  EXPECT_THAT(StepMilliseconds(result), Are(180, 180 + 30 + 10, 180 + 10 + 10));
  EXPECT_EQ(result.sent_bytes, (3 + 3) * kCount * 4 / 2);
}

TEST(UnitsTest, WithoutPrefetchTwoWaysAreMeasured) {
  const UnitsResult result = Measure(/*stage=*/3, /*prefetch=*/0);
  ASSERT_THAT(result.ways, SizeIs(2));
  const CollectiveRecord& own = result.ways[1].own;
  EXPECT_EQ(own.collective, "units");
  EXPECT_EQ(own.layer, "prefetch_0");
  EXPECT_EQ(own.end, "counted");
  EXPECT_THAT(own.start_seconds, SizeIs(kIterations));
  EXPECT_TRUE(ParseRecord(ToJsonLine(own)).ok());
  EXPECT_EQ(result.ways[0].own.layer, "computing");
}

TEST(UnitsTest, RealRanksComputeByMatrixProducts) {
  OnRanks(2, [&](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    const std::vector<Unit> units = Units(2, comm.rank(), 1e-3);
    const UnitsConfig config = {.gemm_size = 32, .iterations = 2};
    const UnitsResult result =
        RunUnits(*comm.process_group(), *control, units, config);
    EXPECT_GT(result.ways[0].step.value, 0);
    const std::string text =
        FormatUnits(units, {{0.001, 0.002}, {0.001, 0.002}}, config, result);
    EXPECT_THAT(text, HasSubstr("units of ZeRO 3, 2 ranks"));
    EXPECT_THAT(text, ContainsRegex("\n  0 to 1 +1\\.000 +1\\.000 +2\\.000\n"));
    EXPECT_THAT(text, ContainsRegex("\n  sum of step +2\\.000 +3\\.000 +4\\."))
        << "the last unit is gathered once";
    EXPECT_THAT(text, ContainsRegex("\n  prefetch 1 +[0-9.]+ +- "));
    EXPECT_THAT(text, HasSubstr("sends 2.621 MB a step; 3 (n-1)/n of the "
                                "parameters are 3.146 MB"));
  });
}

TEST(UnitsTest, StoppedBeforeAnythingWasMeasured) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    const std::atomic<bool> stop{rank.control.rank() == 1};
    const UnitsResult result =
        RunUnits(*rank.group, rank.control, Units(1, rank.control.rank(), 0),
                 {.gemm_size = 8}, &stop);
    EXPECT_TRUE(result.stopped);
    EXPECT_EQ(result.iterations, 0);
  });
}

}  // namespace
}  // namespace rankwise::comm_bench

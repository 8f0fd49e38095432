// The instrument against the truth: what the fake backend injects must come
// back out of the engine, the fit and the pair matrix. Prints both.
#include <cmath>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/Tensor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/clock_sync.h"
#include "comm_bench/cost_fit.h"
#include "comm_bench/pair_matrix.h"
#include "comm_bench/rank_clock.h"
#include "comm_bench/rank_threads_for_test.h"
#include "comm_bench/summary.h"
#include "comm_bench/timing.h"
#include "comm_bench/timing_on_clock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// Injected against recovered, printed when all tests have run.
class Report : public testing::Environment {
 public:
  void TearDown() override {
    std::cout << absl::StrFormat("%-52s %12s %12s %8s\n", "", "injected",
                                 "recovered", "error")
              << text_;
  }
  void Add(const std::string& name, double injected, double recovered) {
    text_ += absl::StrFormat("%-52s %12.5g %12.5g %+7.2f%%\n", name, injected,
                             recovered, 100 * (recovered / injected - 1));
  }

 private:
  std::string text_;
};

Report* const report = static_cast<Report*>(
    testing::AddGlobalTestEnvironment(new Report));  // gtest owns it

void ExpectRecovered(const std::string& name, double injected, double recovered,
                     double tolerance) {
  report->Add(name, injected, recovered);
  EXPECT_NEAR(recovered, injected, tolerance * std::abs(injected)) << name;
}

// All-reduces of `bytes`, as rank 0 sees the series of all.
Series TimeAllReduces(int world_size, const FakeBackendConfig& costs,
                      int64_t bytes, const TimingConfig& config,
                      const std::vector<RankClock>& clocks = {}) {
  Series series;
  OnFakeRanks(world_size, costs, [&](FakeRank& rank) {
    std::vector<at::Tensor> tensors{at::zeros({bytes / 4})};
    const int own = rank.control.rank();
    Series result = TimeIterationsOnClock(
        clocks.empty() ? HostClock() : clocks[own], rank.control,
        [&](int64_t) { rank.group->allreduce(tensors)->wait(); }, config);
    if (own == 0) series = std::move(result);
  });
  return series;
}

std::string Ranks(int world_size) {
  return absl::StrCat(", ", world_size, " ranks");
}

class OracleTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(WorldSize, OracleTest, testing::Values(2, 4));

TEST_P(OracleTest, LatencyAndBandwidth) {
  const FakeBackendConfig costs = {.alpha_us = 10000, .beta_ns_per_byte = 20};
  std::vector<CostPoint> points;
  for (const int64_t kib : {4, 64, 256, 512, 1024}) {
    const Series series = TimeAllReduces(GetParam(), costs, kib << 10,
                                         {.warmup = 1, .iterations = 11});
    points.push_back({static_cast<double>(kib << 10),
                      Summarize(series, Across::kSlowest).median});
  }
  const auto fit = FitCost(points);
  ASSERT_TRUE(fit.ok()) << fit.status();
  const std::string ranks = Ranks(GetParam());
  ExpectRecovered("alpha, ms" + ranks, costs.alpha_us * 1e-3,
                  fit->alpha_seconds * 1e3, 0.05);
  ExpectRecovered("beta, ns/B" + ranks, costs.beta_ns_per_byte,
                  fit->beta_seconds_per_byte * 1e9, 0.05);
}

TEST_P(OracleTest, TailOfTheDistribution) {
  const FakeBackendConfig costs = {
      .alpha_us = 5000, .tail_every = 12, .tail_us = 75000};
  const Summary summary = Summarize(
      TimeAllReduces(GetParam(), costs, 4096, {.warmup = 3, .iterations = 60}),
      Across::kSlowest);
  const std::string ranks = Ranks(GetParam());
  ExpectRecovered("median beside a tail, ms" + ranks, 5, summary.median * 1e3,
                  0.1);
  ExpectRecovered("p99 of the tail, ms" + ranks, 80, summary.p99 * 1e3, 0.05);
}

void ExpectSkewApart(const std::string& name, const Series& series) {
  const double transfer = Summarize(series, Across::kTransfer).median;
  const Summary slowest = Summarize(series, Across::kSlowest);
  ExpectRecovered("transfer, ms" + name, 10, transfer * 1e3, 0.06);
  ExpectRecovered("slowest rank, ms" + name, 18, slowest.median * 1e3, 0.06);
  ExpectRecovered("skew, ms" + name, 8, slowest.skew * 1e3, 0.06);
}

TimingConfig WithArrivals(Sync sync) {
  return {.warmup = 1,
          .iterations = 15,
          .sync = sync,
          .arrival_seconds = {0, 8e-3, 2e-3, 5e-3}};
}

TEST_P(OracleTest, SkewApartFromTransfer) {
  for (const Sync sync : {Sync::kBarrier, Sync::kWindow}) {
    const Series series = TimeAllReduces(GetParam(), {.alpha_us = 10000}, 4096,
                                         WithArrivals(sync));
    ExpectSkewApart(Ranks(GetParam()) +
                        (sync == Sync::kWindow ? ", windows" : ", barriers"),
                    series);
  }
}

TEST_P(OracleTest, SkewAcrossClocksThatDiffer) {
  std::vector<RankClock> clocks;
  for (int rank = 0; rank < GetParam(); ++rank) {
    clocks.push_back({[rank] { return HostClock().now() - 2.5 * rank; }});
  }
  for (const Sync sync : {Sync::kBarrier, Sync::kWindow}) {
    const Series series = TimeAllReduces(GetParam(), {.alpha_us = 10000}, 4096,
                                         WithArrivals(sync), clocks);
    EXPECT_GT(series.clock_error_seconds, 0);
    ExpectSkewApart(Ranks(GetParam()) +
                        (sync == Sync::kWindow ? ", windows" : ", barriers") +
                        ", clocks",
                    series);
  }
}

TEST_P(OracleTest, ClockOffsets) {
  OnFakeRanks(GetParam(), {}, [](FakeRank& rank) {
    const int own = rank.control.rank();
    const ClockSync sync(rank.control,
                         {[own] { return HostClock().now() - 2.5 * own; }});
    EXPECT_NEAR(sync.RootTime(0), 2.5 * own, sync.error_seconds() + 1e-9);
    const auto offsets = rank.control.Gather({sync.RootTime(0)});
    if (own != 0) return;
    for (int other = 1; other < rank.control.world_size(); ++other) {
      ExpectRecovered(absl::StrCat("clock offset of rank ", other, ", s",
                                   Ranks(rank.control.world_size())),
                      2.5 * other, offsets[other][0], 0.01);
    }
  });
}

TEST(PairOracleTest, StragglerAndItsDelay) {
  const FakeBackendConfig costs = {.alpha_us = 3000,
                                   .beta_ns_per_byte = 20,
                                   .straggler_rank = 2,
                                   .straggler_us = 8000};
  PairMatrix matrix;
  OnFakeRanks(4, costs, [&](FakeRank& rank) {
    const auto result = MeasurePairs(
        *rank.group, rank.control,
        {.bandwidth_bytes = 1 << 18, .warmup = 1, .iterations = 9});
    ASSERT_TRUE(result.ok()) << result.status();
    if (rank.control.rank() == 0) matrix = *result;
  });
  ExpectRecovered("latency of pair 0-1, ms", 3,
                  matrix.latency_seconds[0][1] * 1e3, 0.1);
  const double seconds = 3e-3 + 20e-9 * (1 << 18);
  ExpectRecovered("bandwidth of pair 0-1, GB/s", (1 << 18) * 1e-9 / seconds,
                  matrix.bandwidth_gb_per_s[0][1], 0.1);
  const auto straggler = FindStraggler(matrix);
  ASSERT_TRUE(straggler.ok()) << straggler.status();
  ASSERT_TRUE(straggler->has_value());
  ExpectRecovered("straggler's rank", 2, (*straggler)->rank, 0);
  ExpectRecovered("straggler's delay, ms", 8, (*straggler)->delay_seconds * 1e3,
                  0.05);
}

TEST(PairOracleTest, NobodyStandsOut) {
  OnFakeRanks(3, {.alpha_us = 3000}, [&](FakeRank& rank) {
    const auto matrix =
        MeasurePairs(*rank.group, rank.control, {.warmup = 1, .iterations = 9});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    const auto straggler = FindStraggler(*matrix);
    ASSERT_TRUE(straggler.ok()) << straggler.status();
    EXPECT_FALSE(straggler->has_value());
  });
}

}  // namespace
}  // namespace rankwise

// Tests the instrument against a known truth: the engine, the fit and the pair
// matrix must recover the costs injected by the fake backend, exactly, as in
// virtual time nothing else takes time. Prints both.
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
#include "analysis/stats/cost_curve.h"
#include "comm_bench/modes/pair_matrix.h"
#include "comm_bench/timing/timing.h"
#include "gtest/gtest.h"
#include "parallel/clock/clock_sync.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// Relative rounding error of floating-point arithmetic.
constexpr double kRounding = 1e-9;

// Injected and recovered values, printed after all tests.
class Report : public testing::Environment {
 public:
  void TearDown() override {
    std::cout << absl::StrFormat("%-44s %10s %16s %9s\n", "", "injected",
                                 "recovered", "error")
              << text_;
  }
  void Add(const std::string& name, double injected, double recovered,
           double error) {
    absl::StrAppendFormat(&text_, "%-44s %10.5g %16.12g %9.1e\n", name,
                          injected, recovered, error);
  }

 private:
  std::string text_;
};

Report* const report = static_cast<Report*>(
    testing::AddGlobalTestEnvironment(new Report));  // owned by gtest

void ExpectRecovered(const std::string& name, double injected,
                     double recovered) {
  const double difference = recovered - injected;
  const double error =
      injected == 0 ? difference : difference / std::abs(injected);
  report->Add(name, injected, recovered, error);
  EXPECT_LE(std::abs(error), kRounding)
      << name << ": injected " << injected << ", recovered " << recovered;
}

// Runs all-reduces of `bytes`; returns the series of all ranks, on rank 0.
Series TimeAllReduces(int world_size, const FakeBackendConfig& costs,
                      int64_t bytes, const TimingConfig& config,
                      const std::vector<RankClock>& clocks = {}) {
  Series series;
  OnFakeRanks(world_size, costs, [&](FakeRank& rank) {
    const VirtualTime time;
    std::vector<at::Tensor> tensors{at::zeros({bytes / 4})};
    const int own = rank.control.rank();
    Series result = TimeIterations(
        rank.control, [&](int64_t) { rank.group->allreduce(tensors)->wait(); },
        config,
        /*stop=*/nullptr, clocks.empty() ? HostClock() : clocks[own]);
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
  CallSeconds medians;
  for (const int64_t kib : {4, 64, 256, 512, 1024}) {
    const Series series = TimeAllReduces(GetParam(), costs, kib << 10,
                                         {.warmup = 1, .iterations = 11});
    medians[static_cast<double>(kib << 10)][0] = {
        Summarize(series, Across::kSlowest).median};
  }
  const CostLine fit = FitCostCurve(medians)->line;
  const std::string ranks = Ranks(GetParam());
  ExpectRecovered("alpha, ms" + ranks, 10, fit.alpha_seconds * 1e3);
  ExpectRecovered("beta, ns/B" + ranks, 20, fit.beta_seconds_per_byte * 1e9);
}

TEST_P(OracleTest, TailOfTheDistribution) {
  const FakeBackendConfig costs = {
      .alpha_us = 5000, .tail_every = 12, .tail_us = 75000};
  const Summary summary = Summarize(
      TimeAllReduces(GetParam(), costs, 4096, {.warmup = 3, .iterations = 60}),
      Across::kSlowest);
  const std::string ranks = Ranks(GetParam());
  ExpectRecovered("median beside the tail, ms" + ranks, 5,
                  summary.median * 1e3);
  ExpectRecovered("p99 of the tail, ms" + ranks, 80, summary.p99 * 1e3);
}

// Rank 1 starts 8 ms after rank 0, the others in between.
void ExpectSkewApart(int world_size, Sync sync,
                     const std::vector<RankClock>& clocks) {
  const TimingConfig config = {.warmup = 1,
                               .iterations = 11,
                               .sync = sync,
                               .arrival_seconds = {0, 8e-3, 2e-3, 5e-3}};
  const std::string name = absl::StrCat(
      Ranks(world_size), sync == Sync::kWindow ? ", windows" : ", barriers",
      clocks.empty() ? "" : ", own clocks");
  const Series series =
      TimeAllReduces(world_size, {.alpha_us = 10000}, 4096, config, clocks);
  EXPECT_TRUE(series.late.empty());
  const Summary transfer = Summarize(series, Across::kTransfer);
  const Summary slowest = Summarize(series, Across::kSlowest);
  ExpectRecovered("transfer, ms" + name, 10, transfer.median * 1e3);
  ExpectRecovered("slowest rank, ms" + name, 18, slowest.median * 1e3);
  ExpectRecovered("skew, ms" + name, 8, slowest.skew * 1e3);
}

TEST_P(OracleTest, SkewApartFromTransfer) {
  ExpectSkewApart(GetParam(), Sync::kBarrier, {});
  ExpectSkewApart(GetParam(), Sync::kWindow, {});
}

// Returns a clock with an offset for the thread that reads it.
RankClock ShiftedClock(int rank) {
  return {[rank] { return HostClock().now() - 2.5 * rank; }};
}

TEST_P(OracleTest, SkewAcrossClocksThatDiffer) {
  std::vector<RankClock> clocks;
  for (int rank = 0; rank < GetParam(); ++rank) {
    clocks.push_back(ShiftedClock(rank));
  }
  ExpectSkewApart(GetParam(), Sync::kBarrier, clocks);
  ExpectSkewApart(GetParam(), Sync::kWindow, clocks);
}

// Messages between two clocks take 1 ms each way: half a round trip bounds the
// offset's error, and symmetric delays cause none.
TEST_P(OracleTest, ClockOffsets) {
  std::vector<double> offsets(GetParam()), bounds(GetParam());
  OnFakeRanks(GetParam(), {.alpha_us = 1000}, [&](FakeRank& rank) {
    const VirtualTime time;
    const int own = rank.control.rank();
    const auto messages = MakeGroupControl(rank.group);
    const ClockSync sync(*messages, ShiftedClock(own));
    offsets[own] = sync.RootTime(0);
    bounds[own] = sync.error_seconds();
  });
  for (int rank = 0; rank < GetParam(); ++rank) {
    const std::string name = absl::StrCat(" of rank ", rank, Ranks(GetParam()));
    ExpectRecovered("clock offset, s," + name, 2.5 * rank, offsets[rank]);
    ExpectRecovered("its bound, ms," + name, rank == 0 ? 0 : 1,
                    bounds[rank] * 1e3);
  }
}

PairMatrix Pairs(int world_size, const FakeBackendConfig& costs) {
  PairMatrix matrix;
  OnFakeRanks(world_size, costs, [&](FakeRank& rank) {
    const VirtualTime time;
    const auto result = MeasurePairs(
        *rank.group, rank.control,
        {.bandwidth_bytes = 1 << 18, .warmup = 1, .iterations = 9});
    if (rank.control.rank() == 0) matrix = result;
  });
  return matrix;
}

// Each size's message costs alpha + beta * bytes.
void ExpectPair(const PairMatrix& matrix, int a, int b, double alpha_seconds) {
  constexpr double kSecondsPerByte = 20e-9, kBytes = 1 << 18;
  const std::string pair =
      absl::StrCat(", ", matrix.world_size(), " ranks, ", a, "-", b);
  ExpectRecovered("latency of 8 bytes, ms" + pair,
                  (alpha_seconds + kSecondsPerByte * 8) * 1e3,
                  matrix.latency_seconds[a][b] * 1e3);
  ExpectRecovered("bandwidth, GB/s" + pair,
                  kBytes * 1e-9 / (alpha_seconds + kSecondsPerByte * kBytes),
                  matrix.bandwidth_gb_per_s[a][b]);
}

TEST_P(OracleTest, EveryPair) {
  const PairMatrix matrix =
      Pairs(GetParam(), {.alpha_us = 3000, .beta_ns_per_byte = 20});
  for (int low = 0; low < GetParam(); ++low) {
    for (int high = low + 1; high < GetParam(); ++high) {
      ExpectPair(matrix, low, high, 3e-3);
    }
  }
}

TEST(PairOracleTest, StragglerAndItsDelay) {
  const PairMatrix matrix = Pairs(4, {.alpha_us = 3000,
                                      .beta_ns_per_byte = 20,
                                      .straggler_rank = 2,
                                      .straggler_us = 8000});
  ExpectPair(matrix, 0, 1, 3e-3);
  ExpectPair(matrix, 0, 2, 11e-3);
  const auto straggler = FindStraggler(matrix);
  ASSERT_TRUE(straggler.has_value());
  ExpectRecovered("straggler's rank", 2, straggler->rank);
  ExpectRecovered("straggler's delay, ms", 8, straggler->delay_seconds * 1e3);
}

TEST(PairOracleTest, NobodyStandsOut) {
  EXPECT_FALSE(FindStraggler(Pairs(3, {.alpha_us = 3000})).has_value());
}

}  // namespace
}  // namespace rankwise::comm_bench

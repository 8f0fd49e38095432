#include "comm_bench/timing/timing.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm_bench/timing/series_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using End = Series::End;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// Runs one rank whose iteration `index` takes `seconds(index)` on a simulated
// clock.
Series OnSimulatedClock(const std::function<double(int64_t)>& seconds,
                        const TimingConfig& config) {
  Series series;
  OnFakeRanks(1, {}, [&](FakeRank& rank) {
    double now = 0;
    series = TimeIterations(
        rank.control, [&](int64_t index) { now += seconds(index); }, config,
        /*stop=*/nullptr, {[&] { return now; }});
  });
  return series;
}

double Steady(int64_t) { return 1e-3; }
double Noisy(int64_t index) { return index % 2 == 0 ? 1e-3 : 3e-3; }

TEST(TimingTest, AQuietSeriesEndsAfterTheFewestIterations) {
  const Series series = OnSimulatedClock(Steady, {});
  EXPECT_EQ(series.end, End::kPrecise);
  EXPECT_EQ(series.iterations(), 42);
  EXPECT_NEAR(series.seconds[5], 1e-3, 1e-12);
  EXPECT_NEAR(series.start_seconds[5], 5e-3, 1e-12);
  EXPECT_THAT(series.late, IsEmpty());
}

// Iterations with lag-1 correlation `rho` and the standard deviation `spread`
// of the logarithm. With a tail, one in 20 takes up to 11 times as long.
struct Noise {
  double rho, spread;
  bool tail;
};

// Returns the share of series, each ended by its interval's precision, whose
// interval contains the true median.
double ShareCovered(const Noise& noise, double truth, int trials) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  double state = 0;
  const auto next = [&](int64_t) {
    state = noise.rho * state +
            std::sqrt(1 - noise.rho * noise.rho) * normal(random);
    const bool long_one = noise.tail && uniform(random) < 0.05;
    return 1e-3 * std::exp(noise.spread * state) *
           (long_one ? 1.5 + 10 * uniform(random) : 1);
  };
  int covered = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const Series series = OnSimulatedClock(next, {});
    const Estimate median = MedianOf(Summarize(series, Across::kSlowest));
    covered += median.low <= truth && truth <= median.high;
  }
  return covered / static_cast<double>(trials);
}

// RANKWISE_TRIALS=2000 prints the table of docs/comm_bench.md.
TEST(TimingTest, IntervalsOfSeriesThatEndThemselvesHoldTheTruth) {
  const char* more = std::getenv("RANKWISE_TRIALS");
  const int trials = more == nullptr ? 300 : std::atoi(more);
  for (const bool tail : {false, true}) {
    for (const double spread : {0.03, 0.1}) {
      // With a tail, the median is a higher quantile of the other iterations.
      constexpr double kQuantileInTail = 0.0660;  // Phi^-1(0.5 / 0.95)
      const double truth = 1e-3 * std::exp(tail ? spread * kQuantileInTail : 0);
      for (const double rho : {0.0, 0.3, 0.7}) {
        const double share = ShareCovered({rho, spread, tail}, truth, trials);
        std::printf("correlation %.1f, spread %.2f%s: %.1f %%\n", rho, spread,
                    tail ? ", with a tail" : "", 100 * share);
        EXPECT_GE(share, 0.90);
        EXPECT_LE(share, 0.995);
      }
    }
  }
}

// Half of a device's iteration is the host's launch, which the device does not
// measure.
TEST(TimingTest, AnIterationMayReportItsOwnSeconds) {
  double own = 0;
  TimingConfig config;
  config.warmup = 2;
  config.iterations = 5;
  config.own_seconds = [&own] { return own; };
  const Series series = OnSimulatedClock(
      [&](int64_t index) {
        own = 1e-6 * static_cast<double>(index);
        return 1e-3;
      },
      config);
  ASSERT_THAT(series.seconds, SizeIs(5));
  for (int i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(series.seconds[i], 1e-6 * (i + 2));
    EXPECT_NEAR(series.start_seconds[i], 1e-3 * i, 1e-12)
        << "starts are the host's";
  }
}

TEST(TimingTest, ANoisySeriesUsesItsTime) {
  const Series series = OnSimulatedClock(Noisy, {.max_seconds = 0.5});
  EXPECT_EQ(series.end, End::kOutOfTime);
  const double last = series.start_seconds.back();
  EXPECT_GE(last, 0.49);
  EXPECT_LE(last, 0.51);
}

TEST(TimingTest, ANoisySeriesEndsAtItsMostIterations) {
  const Series series =
      OnSimulatedClock(Noisy, {.max_iterations = 1001, .max_seconds = 1e9});
  EXPECT_EQ(series.end, End::kMaxIterations);
  EXPECT_EQ(series.iterations(), 1001);
}

TEST(TimingTest, LongIterationsDoNotOverrunMaxSeconds) {
  for (const int64_t warmup : {-1, 0}) {
    const Series series =
        OnSimulatedClock([](int64_t index) { return 50 * Noisy(index); },
                         {.warmup = warmup, .max_seconds = 1});
    EXPECT_EQ(series.end, End::kOutOfTime);
    EXPECT_LE(series.start_seconds.back(), 1);
  }
}

TEST(TimingTest, TheFewestIterationsRunEvenOutOfTime) {
  const Series series = OnSimulatedClock(
      [](int64_t) { return 10; }, {.min_iterations = 4, .max_seconds = 0.1});
  EXPECT_EQ(series.end, End::kOutOfTime);
  EXPECT_EQ(series.iterations(), 4);
}

TEST(TimingTest, CountedIterationsRunExactly) {
  std::vector<int64_t> indices;
  const Series series = OnSimulatedClock(
      [&](int64_t index) {
        indices.push_back(index);
        return index < 3 ? 7 : 1e-3;
      },
      {.warmup = 3, .iterations = 100});
  EXPECT_EQ(series.end, End::kCounted);
  EXPECT_THAT(series.seconds, SizeIs(100));
  EXPECT_NEAR(series.seconds[0], 1e-3, 1e-9);
  ASSERT_THAT(indices, SizeIs(103));
  for (int64_t i = 0; i < 103; ++i) EXPECT_EQ(indices[i], i);
}

TEST(TimingTest, SlowIterationsTakeAnyNumberOfBatches) {
  const Series series = OnSimulatedClock([](int64_t) { return 0.15; },
                                         {.warmup = 1, .iterations = 200});
  EXPECT_EQ(series.end, End::kCounted);
  EXPECT_EQ(series.iterations(), 200);
}

TEST(TimingTest, WarmsUpUntilStable) {
  int64_t calls = 0;
  const Series series = OnSimulatedClock(
      [&](int64_t index) {
        ++calls;
        return index < 20 ? 1e-3 * (25 - index) : 1e-3;
      },
      {.max_warmup_seconds = 10, .iterations = 1});
  EXPECT_GE(calls, 26);
  EXPECT_LE(calls, 36);
  EXPECT_NEAR(series.seconds[0], 1e-3, 1e-9);
}

TEST(TimingTest, WarmUpKeepsItsTime) {
  int64_t calls = 0;
  OnSimulatedClock(
      [&](int64_t index) {
        ++calls;
        return 1e-3 * (index % 10 < 5 ? 1 : 2);
      },
      {.max_warmup_seconds = 0.1, .iterations = 1});
  EXPECT_GE(calls, 60);
  EXPECT_LE(calls, 72);
}

TEST(TimingTest, OneRanksStopEndsTheSeriesOnAll) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    std::atomic<bool> stop{false};
    const Series series = TimeIterations(
        rank.control,
        [&](int64_t index) { stop = rank.control.rank() == 1 && index >= 10; },
        {.warmup = 2, .iterations = 1 << 20}, &stop);
    EXPECT_EQ(series.end, End::kInterrupted);
    EXPECT_GE(series.iterations(), 9);
    EXPECT_LT(series.iterations(), 1 << 20);
    const double iterations = static_cast<double>(series.iterations());
    for (const auto& other : rank.control.Gather({iterations})) {
      EXPECT_EQ(other[0], iterations);
    }
  });
}

TEST(TimingTest, AStopDuringWarmUpLeavesAnEmptySeries) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    const std::atomic<bool> stop{true};
    const Series series = TimeIterations(
        rank.control, [](int64_t) {}, {}, &stop);
    EXPECT_EQ(series.end, End::kInterrupted);
    EXPECT_EQ(series.iterations(), 0);
    EXPECT_THAT(series.seconds, IsEmpty());
  });
}

// All data for decisions is equal; each rank has its own samples.
TEST(TimingTest, AllRanksReturnTheSame) {
  for (const Sync sync : {Sync::kBarrier, Sync::kWindow, Sync::kNone}) {
    OnFakeRanks(3, {}, [&](FakeRank& rank) {
      const Series series = TimeIterations(
          rank.control,
          [](int64_t) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
          },
          {.iterations = 10, .sync = sync});
      ASSERT_EQ(series.iterations(), 10);
      std::vector<double> own(series.late.begin(), series.late.end());
      own.resize(10, -1);
      for (const Extent& extent : series.extents) {
        own.insert(own.end(),
                   {extent.first_start, extent.last_start, extent.last_end,
                    extent.first_undelayed_start, extent.last_undelayed_start,
                    extent.slowest_seconds, extent.mean_seconds});
      }
      for (const auto& other : rank.control.Gather(own)) {
        EXPECT_EQ(other, own);
      }
    });
  }
}

// The reduction equals that of all ranks' samples in one place.
TEST(TimingTest, ExtentsAreThoseOfAllRanksSamples) {
  OnFakeRanks(3, {}, [](FakeRank& rank) {
    VirtualTime time;
    const TimingConfig config = {
        .warmup = 1, .iterations = 7, .arrival_seconds = {0, 2e-3, 1e-3}};
    const int own = rank.control.rank();
    const Series series = TimeIterations(
        rank.control,
        [&](int64_t index) { time.Advance(1e-3 * ((index + own) % 3 + 1)); },
        config);
    const Series expected = SeriesOfRanks(
        rank.control.Gather(series.seconds),
        rank.control.Gather(series.start_seconds), config.arrival_seconds);
    ASSERT_EQ(series.iterations(), 7);
    for (size_t i = 0; i < 7; ++i) {
      const Extent &got = series.extents[i], &want = expected.extents[i];
      EXPECT_NEAR(got.first_start, want.first_start, 1e-12);
      EXPECT_NEAR(got.last_start, want.last_start, 1e-12);
      EXPECT_NEAR(got.last_end, want.last_end, 1e-12);
      EXPECT_NEAR(got.first_undelayed_start, want.first_undelayed_start, 1e-12);
      EXPECT_NEAR(got.last_undelayed_start, want.last_undelayed_start, 1e-12);
      EXPECT_EQ(got.slowest_seconds, want.slowest_seconds);
      EXPECT_NEAR(got.mean_seconds, want.mean_seconds, 1e-12);
    }
  });
}

// Counts the numbers that a rank exchanges in addition to the measurement.
class CountingControl : public Control {
 public:
  explicit CountingControl(Control& control) : control_(control) {}
  int rank() const override { return control_.rank(); }
  int world_size() const override { return control_.world_size(); }
  std::vector<std::vector<double>> Gather(
      absl::Span<const double> values) override {
    numbers += values.size() * (1 + world_size());
    return control_.Gather(values);
  }
  std::vector<double> Max(absl::Span<const double> values) override {
    numbers += 2 * values.size();
    return control_.Max(values);
  }
  std::vector<double> Sum(absl::Span<const double> values) override {
    numbers += 2 * values.size();
    return control_.Sum(values);
  }
  void Barrier() override { control_.Barrier(); }
  void Send(double value, int to) override { control_.Send(value, to); }
  double Receive(int from) override { return control_.Receive(from); }

  size_t numbers = 0;

 private:
  Control& control_;
};

size_t NumbersExchanged(int world_size) {
  std::atomic<size_t> numbers = 0;
  OnFakeRanks(world_size, {}, [&](FakeRank& rank) {
    CountingControl control(rank.control);
    VirtualTime time;
    const Series series =
        TimeIterations(control, [&](int64_t) { time.Advance(1e-3); },
                       {.warmup = 2, .iterations = 100});
    EXPECT_THAT(series.seconds, SizeIs(100));
    if (control.rank() == 0) numbers = control.numbers;
  });
  return numbers;
}

// Required for measurements on thousands of ranks.
TEST(TimingTest, WhatARankExchangesDoesNotGrowWithTheirNumber) {
  EXPECT_EQ(NumbersExchanged(64), NumbersExchanged(2));
}

TEST(TimingTest, AFailureOnOneRankEndsTheSeriesOnAll) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    absl::Status failure;
    const Series series = TimeIterations(
        rank.control,
        [&](int64_t index) {
          if (rank.control.rank() == 1 && index == 3)
            failure = absl::InternalError("no more");
        },
        {.warmup = 0, .iterations = 1 << 20, .failure = &failure});
    EXPECT_EQ(series.end, End::kInterrupted);
    EXPECT_LT(series.iterations(), 100);
  });
}

TEST(TimingTest, RanksStartTogetherInWindows) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    VirtualTime time;
    const Series series =
        TimeIterations(rank.control, [&](int64_t) { time.Advance(1e-3); },
                       {.iterations = 20, .sync = Sync::kWindow});
    // An iteration plus half of it and a margin.
    const std::vector<double>& starts = series.start_seconds;
    EXPECT_NEAR(starts[5] - starts[4], 1.7e-3, 1e-9);
    EXPECT_EQ(series.extents[5].first_start, series.extents[5].last_start);
    EXPECT_THAT(series.late, IsEmpty());
  });
}

TEST(TimingTest, AnOverrunWindowMakesTheNextOnesLate) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    VirtualTime time;
    const Series series = TimeIterations(
        rank.control,
        [&](int64_t index) {
          time.Advance(index == 4 && rank.control.rank() == 1 ? 0.3 : 2e-3);
        },
        {.warmup = 2, .iterations = 8, .sync = Sync::kWindow});
    // The late iterations of the same batch.
    EXPECT_THAT(series.late, ElementsAre(3, 4, 5));
  });
}

// The clock advances by a second between reads, so every start is late.
TEST(TimingTest, WindowsThatAreAlwaysMissedDoNotGrowForever) {
  OnFakeRanks(1, {}, [](FakeRank& rank) {
    double now = 0;
    const Series series =
        TimeIterations(rank.control, [](int64_t) {},
                       {.warmup = 0, .iterations = 40, .sync = Sync::kWindow},
                       /*stop=*/nullptr, {[&now] { return now += 1; }});
    EXPECT_EQ(series.iterations(), 40);
  });
}

TEST(TimingTest, ARankThatLosesItsCoreAfterTheBarrierIsLate) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    VirtualTime time;
    const RankClock host = HostClock();
    int until_sleep = 0;  // reads of the clock
    const RankClock clock{[&] {
                            if (until_sleep > 0 && --until_sleep == 0) {
                              time.Advance(0.1);
                            }
                            return host.now();
                          },
                          host.id};
    const Series series = TimeIterations(
        rank.control,
        [&](int64_t index) {
          time.Advance(1e-3);
          // The first read is this iteration's end, the second the next one's
          // start.
          if (index == 5 && rank.control.rank() == 1) until_sleep = 2;
        },
        {.warmup = 2, .iterations = 12}, /*stop=*/nullptr, clock);
    EXPECT_THAT(series.late, ElementsAre(4));
  });
}

TEST(TimingTest, ExceptionsPassThrough) {
  OnFakeRanks(1, {}, [](FakeRank& rank) {
    EXPECT_THROW(
        TimeIterations(rank.control,
                       [](int64_t) { throw std::runtime_error("broken"); }, {}),
        std::runtime_error);
  });
}

TEST(WarmUpTest, IsStableWhenFiveTakeAsLongAsTheFiveBefore) {
  EXPECT_TRUE(IsStable({10, 10, 10, 10, 10, 9.5, 9.5, 9.5, 9.5, 9.5}));
  EXPECT_TRUE(IsStable({10, 10, 10, 10, 10, 10.5, 10.5, 10.5, 10.5, 99}));
  EXPECT_TRUE(IsStable({99, 99, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10}));
}

TEST(WarmUpTest, IsNotStableWhileTimesFallOrRise) {
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 8, 8, 8, 8, 8}));
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 12, 12, 12, 12, 12}));
}

TEST(WarmUpTest, IsNotStableOnTooLittle) {
  EXPECT_FALSE(IsStable({}));
  EXPECT_FALSE(IsStable({10, 10, 10, 10, 10, 10, 10, 10, 10}));
}

}  // namespace
}  // namespace rankwise::comm_bench

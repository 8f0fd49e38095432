#include "comm_bench/timing/timing.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "comm_bench/timing/timing_on_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_clock.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/virtual_time.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using End = Series::End;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

// One rank whose iteration `index` takes `seconds(index)` on a clock that
// nothing else moves.
Series OnSimulatedClock(const std::function<double(int64_t)>& seconds,
                        const TimingConfig& config) {
  Series series;
  OnFakeRanks(1, {}, [&](FakeRank& rank) {
    double now = 0;
    series = TimeIterationsOnClock(
        {[&] { return now; }}, rank.control,
        [&](int64_t index) { now += seconds(index); }, config);
  });
  return series;
}

double Steady(int64_t) { return 1e-3; }
double Noisy(int64_t index) { return index % 2 == 0 ? 1e-3 : 3e-3; }

TEST(TimingTest, AQuietSeriesEndsAsSoonAsAnIntervalExists) {
  const Series series = OnSimulatedClock(Steady, {});
  EXPECT_EQ(series.end, End::kPrecise);
  EXPECT_EQ(series.iterations(), 6);
  EXPECT_NEAR(series.seconds[0][5], 1e-3, 1e-12);
  EXPECT_NEAR(series.start_seconds[0][5], 5e-3, 1e-12);
  EXPECT_THAT(series.late, IsEmpty());
}

// Half a device's iteration is the host's launch, of which it knows nothing.
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
  ASSERT_THAT(series.seconds[0], SizeIs(5));
  for (int i = 0; i < 5; ++i) {
    EXPECT_DOUBLE_EQ(series.seconds[0][i], 1e-6 * (i + 2));
    EXPECT_NEAR(series.start_seconds[0][i], 1e-3 * i, 1e-12)
        << "starts are the host's";
  }
}

TEST(TimingTest, ANoisySeriesUsesItsTime) {
  const Series series = OnSimulatedClock(Noisy, {.max_seconds = 0.5});
  EXPECT_EQ(series.end, End::kOutOfTime);
  const double last = series.start_seconds[0].back();
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
    EXPECT_LE(series.start_seconds[0].back(), 1);
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
  EXPECT_THAT(series.seconds[0], SizeIs(100));
  EXPECT_NEAR(series.seconds[0][0], 1e-3, 1e-9);
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
  EXPECT_NEAR(series.seconds[0][0], 1e-3, 1e-9);
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
    EXPECT_THAT(series.seconds, SizeIs(2));
  });
}

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
      for (const auto* values : {&series.seconds, &series.start_seconds}) {
        for (const auto& of_rank : *values) {
          own.insert(own.end(), of_rank.begin(), of_rank.end());
        }
      }
      for (const auto& other : rank.control.Gather(own)) {
        EXPECT_EQ(other, own);
      }
    });
  }
}

TEST(TimingTest, RanksStartTogetherInWindows) {
  OnFakeRanks(2, {}, [](FakeRank& rank) {
    VirtualTime time;
    const Series series =
        TimeIterations(rank.control, [&](int64_t) { time.Advance(1e-3); },
                       {.iterations = 20, .sync = Sync::kWindow});
    // Half an iteration and a margin longer than an iteration takes.
    for (const auto& starts : series.start_seconds) {
      EXPECT_NEAR(starts[5] - starts[4], 1.7e-3, 1e-9);
    }
    EXPECT_EQ(series.start_seconds[0], series.start_seconds[1]);
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
    // Those of the same batch.
    EXPECT_THAT(series.late, ElementsAre(3, 4, 5));
  });
}

// The clock gains a second between any two reads, so every start is late.
TEST(TimingTest, WindowsThatAreAlwaysMissedDoNotGrowForever) {
  OnFakeRanks(1, {}, [](FakeRank& rank) {
    double now = 0;
    const Series series = TimeIterationsOnClock(
        {[&now] { return now += 1; }}, rank.control, [](int64_t) {},
        {.warmup = 0, .iterations = 40, .sync = Sync::kWindow});
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
    const Series series =
        TimeIterationsOnClock(clock, rank.control,
                              [&](int64_t index) {
                                time.Advance(1e-3);
                                // The first read is this iteration's end, the
                                // second the next start.
                                if (index == 5 && rank.control.rank() == 1)
                                  until_sleep = 2;
                              },
                              {.warmup = 2, .iterations = 12});
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

}  // namespace
}  // namespace rankwise::comm_bench

#include "comm_bench/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ATen/ops/zeros.h"
#include "comm_bench/collectives.h"
#include "comm_bench/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

constexpr double kCommSeconds = 0.02, kComputeSeconds = 0.03;
// What sleeps and threads may take on a busy machine.
constexpr double kSlack = 0.15;

Buffers Make(const Call& call) {
  Buffers buffers;
  buffers.input = buffers.output = at::zeros({call.count});
  return buffers;
}

void Start(c10d::ProcessGroup& group, const Call&, Buffers& buffers,
           Works& works) {
  std::vector<at::Tensor> tensors = {buffers.input};
  works.push_back(group.allreduce(tensors));
}

void StartAndWait(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                  Works& works) {
  Start(group, call, buffers, works);
  works.back()->wait();
  works.clear();
}

Collective AllReduce(decltype(Collective::start) start) {
  Collective collective;
  collective.name = "all_reduce";
  collective.make = Make;
  collective.start = start;
  return collective;
}

// Over two ranks with injected costs, beside a computation of known length that
// needs no core.
OverlapResult Measure(const Collective& collective) {
  OverlapResult result;
  OnFakeRanks(2, {.alpha_us = kCommSeconds * 1e6}, [&](FakeRank& rank) {
    OverlapConfig config;
    config.iterations = 5;
    config.warmup = 1;
    config.compute = [] {
      std::this_thread::sleep_for(
          std::chrono::duration<double>(kComputeSeconds));
    };
    const Call call{.count = 16, .world_size = 2};
    const OverlapResult mine =
        RunOverlap(*rank.group, rank.control, collective, call, config);
    if (rank.control.rank() == 0) result = mine;
  });
  return result;
}

TEST(OverlapTest, AnAsynchronousCollectiveIsHidden) {
  const OverlapResult result = Measure(AllReduce(Start));
  ASSERT_EQ(result.ranks.size(), 2u);
  for (const OverlapSamples& samples : result.ranks) {
    const OverlapFigures figures = FiguresOf(samples);
    EXPECT_NEAR(figures.comm_seconds, kCommSeconds, kSlack * kCommSeconds);
    EXPECT_NEAR(figures.osu, 1, kSlack);
    EXPECT_NEAR(figures.imb_nbc, kCommSeconds / kComputeSeconds, kSlack);
    EXPECT_NEAR(figures.hta, 1, kSlack);
    EXPECT_NEAR(figures.union_seconds, kCommSeconds, kSlack * kCommSeconds);
    EXPECT_NEAR(figures.union_share, kCommSeconds / kComputeSeconds, kSlack);
    EXPECT_NEAR(figures.compute_slowdown, 1, kSlack);
    EXPECT_NEAR(figures.comm_slowdown, 1, kSlack) << "though waited for late";
  }
}

TEST(OverlapTest, ABlockingCollectiveIsNot) {
  const OverlapResult result = Measure(AllReduce(StartAndWait));
  ASSERT_EQ(result.ranks.size(), 2u);
  for (const OverlapSamples& samples : result.ranks) {
    const OverlapFigures figures = FiguresOf(samples);
    EXPECT_NEAR(figures.osu, 0, kSlack);
    EXPECT_NEAR(figures.imb_nbc, 0, kSlack);
    EXPECT_NEAR(figures.hta, 0, kSlack);
    EXPECT_NEAR(figures.union_share, 0, kSlack);
    EXPECT_NEAR(figures.both_seconds, kCommSeconds + kComputeSeconds,
                kSlack * (kCommSeconds + kComputeSeconds));
  }
}

TEST(OverlapTest, RealRanksBesideMatrixProducts) {
  const auto collective = FindCollective("all_reduce");
  ASSERT_TRUE(collective.ok()) << collective.status();
  OnRanks(2, [&](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    Call call{.count = 1 << 14, .rank = comm.rank(), .world_size = 2};
    const OverlapResult result =
        RunOverlap(*comm.process_group(), *control, **collective, call,
                   {.gemm_size = 64, .iterations = 3});
    EXPECT_GE(result.gemms, 1);
    EXPECT_EQ(result.bytes, 1 << 16);
    const OverlapRecord record = RecordOf(result, comm.rank());
    EXPECT_EQ(record.dtype, "float32");
    EXPECT_EQ(record.gemm_size, 64);
    ASSERT_EQ(record.both_seconds.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GT(record.compute_seconds[i], 0);
      EXPECT_GT(record.comm_seconds[i], 0);
      EXPECT_LE(record.both_compute_seconds[i], record.both_seconds[i]);
      EXPECT_GT(record.both_comm_seconds[i], 0);
    }
    EXPECT_THAT(FormatOverlap(result),
                HasSubstr("products of 64 x 64 float32 matrices; medians of 3 "
                          "iterations\n"));
  });
}

TEST(OverlapTest, StoppedBeforeAnythingWasMeasured) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    const std::atomic<bool> stop{rank.control.rank() == 1};
    const OverlapResult result =
        RunOverlap(*rank.group, rank.control, AllReduce(Start),
                   {.count = 4, .world_size = 2}, {.gemm_size = 8}, &stop);
    EXPECT_THAT(FormatOverlap(result), HasSubstr("nothing was measured"));
    EXPECT_TRUE(RecordOf(result, 1).both_seconds.empty());
  });
}

}  // namespace
}  // namespace rankwise

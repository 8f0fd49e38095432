#include "comm_bench/modes/overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "ATen/ops/zeros.h"
#include "comm_bench/collectives/collective.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "parallel/comm/test_ranks.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

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

// A launch that occupies the host for 10 ms.
void StartSlowly(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                 Works& works) {
  VirtualTime::OfThisThread()->Advance(10e-3);
  Start(group, call, buffers, works);
}

// Two calls, the first of which is waited for.
void StartAndWaitForHalf(c10d::ProcessGroup& group, const Call& call,
                         Buffers& buffers, Works& works) {
  StartAndWait(group, call, buffers, works);
  Start(group, call, buffers, works);
}

// A run in virtual time with given durations of a call and a computation, and
// figures computed by hand.
struct Scenario {
  std::string name;
  decltype(Collective::start) start = nullptr;
  double call_ms = 0, compute_ms = 0;
  // milliseconds instead of seconds
  OverlapFigures expected = {};
};

std::vector<Scenario> Scenarios() {
  return {{.name = "HiddenByALongerComputation",
           .start = Start,
           .call_ms = 40,
           .compute_ms = 60,
           .expected = {.compute_seconds = 60,
                        .comm_seconds = 40,
                        .both_seconds = 60,
                        .osu = 1,
                        .imb_nbc = 40. / 60,
                        .hta = 1,
                        .union_seconds = 40,
                        .union_share = 40. / 60}},
          {.name = "HidesAShorterComputation",
           .start = Start,
           .call_ms = 80,
           .compute_ms = 20,
           .expected = {.compute_seconds = 20,
                        .comm_seconds = 80,
                        .both_seconds = 80,
                        .osu = 1 - 60. / 80,
                        .imb_nbc = 20. / 80,
                        .hta = 20. / 80,
                        .union_seconds = 20,
                        .union_share = 20. / 80}},
          {.name = "AsLongAsTheComputation",
           .start = Start,
           .call_ms = 50,
           .compute_ms = 50,
           .expected = {.compute_seconds = 50,
                        .comm_seconds = 50,
                        .both_seconds = 50,
                        .osu = 1,
                        .imb_nbc = 1,
                        .hta = 1,
                        .union_seconds = 50,
                        .union_share = 1}},
          {.name = "Blocking",
           .start = StartAndWait,
           .call_ms = 40,
           .compute_ms = 60,
           .expected = {.compute_seconds = 60,
                        .comm_seconds = 40,
                        .both_seconds = 100}},
          {.name = "HalfBlocking",
           .start = StartAndWaitForHalf,
           .call_ms = 40,
           .compute_ms = 60,
           .expected = {.compute_seconds = 60,
                        .comm_seconds = 80,
                        .both_seconds = 100,
                        .osu = 1 - 40. / 80,
                        .imb_nbc = 40. / 80,
                        .hta = 40. / 80,
                        .union_seconds = 40,
                        .union_share = 40. / 100}},
          {.name = "SlowToStart",
           .start = StartSlowly,
           .call_ms = 40,
           .compute_ms = 60,
           .expected = {.compute_seconds = 60,
                        .comm_seconds = 50,
                        .both_seconds = 70,
                        .osu = 1 - 10. / 50,
                        .imb_nbc = 40. / 60,
                        .hta = 40. / 50,
                        .union_seconds = 40,
                        .union_share = 40. / 70}}};
}

// Runs the scenario on two ranks.
OverlapResult Measure(const Scenario& scenario) {
  OverlapResult result;
  OnFakeRanks(2, {.alpha_us = scenario.call_ms * 1e3}, [&](FakeRank& rank) {
    VirtualTime time;
    OverlapConfig config;
    config.iterations = 5;
    config.warmup = 1;
    config.compute = [&] { time.Advance(scenario.compute_ms * 1e-3); };
    const Call call{.count = 16, .world_size = 2};
    const OverlapResult mine = RunOverlap(
        *rank.group, rank.control, AllReduce(scenario.start), call, config);
    if (rank.control.rank() == 0) result = mine;
  });
  return result;
}

struct Column {
  const char* name;
  double OverlapFigures::*figure;
  double unit;
};
constexpr Column kColumns[] = {
    {"compute", &OverlapFigures::compute_seconds, 1e3},
    {"comm", &OverlapFigures::comm_seconds, 1e3},
    {"both", &OverlapFigures::both_seconds, 1e3},
    {"OSU", &OverlapFigures::osu, 1},
    {"IMB-NBC", &OverlapFigures::imb_nbc, 1},
    {"HTA", &OverlapFigures::hta, 1},
    {"union", &OverlapFigures::union_seconds, 1e3},
    {"union's share", &OverlapFigures::union_share, 1},
    {"compute's slowdown", &OverlapFigures::compute_slowdown, 1},
    {"comm's slowdown", &OverlapFigures::comm_slowdown, 1}};

class OverlapFiguresTest : public testing::TestWithParam<Scenario> {};

INSTANTIATE_TEST_SUITE_P(All, OverlapFiguresTest,
                         testing::ValuesIn(Scenarios()),
                         [](const auto& info) { return info.param.name; });

TEST_P(OverlapFiguresTest, AreExactOnEveryRank) {
  constexpr double kRounding = 1e-9;
  const OverlapFigures& expected = GetParam().expected;
  const OverlapResult result = Measure(GetParam());
  ASSERT_EQ(result.ranks.size(), 2u);
  for (const OverlapRank& rank : result.ranks) {
    for (const auto& [name, figure, unit] : kColumns) {
      EXPECT_NEAR(rank.figures.*figure * unit, expected.*figure, kRounding)
          << name;
    }
  }
}

TEST(OverlapTest, RealRanksBesideMatrixProducts) {
  const auto collective = FindCollective("all_reduce");
  ASSERT_TRUE(collective.ok()) << collective.status();
  OnRanks(2, [&](Communicator& comm) {
    const auto control = MakeGroupControl(comm.process_group());
    Call call{.count = 1 << 14,
              .in_place = true,
              .rank = comm.rank(),
              .world_size = 2};
    const OverlapResult result =
        RunOverlap(*comm.process_group(), *control, **collective, call,
                   {.gemm_size = 64, .iterations = 3});
    EXPECT_GE(result.gemms, 1);
    EXPECT_EQ(result.own.bytes, 1 << 16);
    const OverlapRecord& record = result.own;
    EXPECT_EQ(record.rank, comm.rank());
    EXPECT_EQ(record.dtype, "float32");
    EXPECT_EQ(record.gemm_size, 64);
    ASSERT_EQ(record.both_seconds.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GT(record.compute_seconds[i], 0);
      EXPECT_GT(record.comm_seconds[i], 0);
      EXPECT_LE(record.both_compute_seconds[i], record.both_seconds[i]);
      EXPECT_GT(record.both_comm_seconds[i], 0);
    }
    EXPECT_EQ(record.op, "sum");
    EXPECT_TRUE(record.in_place);
    EXPECT_FALSE(result.stopped);
    EXPECT_THAT(FormatOverlap(result),
                HasSubstr("all_reduce of 65536 bytes, float32, sum, in place, "
                          "next to "));
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
    EXPECT_TRUE(result.stopped);
    EXPECT_THAT(FormatOverlap(result), HasSubstr("nothing was measured"));
    EXPECT_TRUE(result.own.both_seconds.empty());
  });
}

}  // namespace
}  // namespace rankwise::comm_bench

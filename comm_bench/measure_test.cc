#include "comm_bench/measure.h"

#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "comm_bench/collectives.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/rank_threads_for_test.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

MeasureConfig Quick() {
  MeasureConfig config;
  config.timing.warmup = 1;
  config.timing.iterations = 4;
  return config;
}

Call AllReduceCall(const Control& control, int64_t count) {
  Call call;
  call.count = count;
  call.in_place = true;
  call.rank = control.rank();
  call.world_size = control.world_size();
  return call;
}

// As all_reduce, but rank 1 ends with a wrong element.
void StartWrongly(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                  Works& works) {
  (*FindCollective("all_reduce"))->start(group, call, buffers, works);
  for (const auto& work : works) work->wait();
  works.clear();
  if (call.rank == 1) buffers.output.data_ptr<float>()[5] = -7;
}

TEST(MeasureTest, TheFirstWrongElementIsNamed) {
  Collective broken = **FindCollective("all_reduce");
  broken.start = StartWrongly;
  OnFakeRanks(3, {}, [&](FakeRank& rank) {
    const Measurement measured =
        MeasureRow(*rank.group, rank.control, broken,
                   AllReduceCall(rank.control, 8), {}, Quick());
    EXPECT_THAT(measured.wrong,
                HasSubstr("all_reduce of 32 bytes float32 sum: rank 1 has 1 "
                          "wrong element before timing; the first at index 5: "
                          "expected "));
    EXPECT_THAT(measured.wrong, HasSubstr(", got -7"));
    EXPECT_EQ(measured.row.wrong, 2) << "before and after timing";
    EXPECT_EQ(measured.samples.wrong, rank.control.rank() == 1 ? 2 : 0);
  });
}

TEST(MeasureTest, ARightResultHasNoWrongElement) {
  OnFakeRanks(2, {}, [&](FakeRank& rank) {
    const Measurement measured =
        MeasureRow(*rank.group, rank.control, **FindCollective("all_reduce"),
                   AllReduceCall(rank.control, 8), {}, Quick());
    EXPECT_EQ(measured.wrong, "");
    EXPECT_EQ(measured.row.wrong, 0);
    EXPECT_EQ(measured.samples.seconds.size(), 4);
    EXPECT_EQ(measured.row.time.samples, 4);
  });
}

TEST(MeasureTest, UncheckedRowsSaySo) {
  OnFakeRanks(1, {}, [&](FakeRank& rank) {
    MeasureConfig config = Quick();
    config.check = false;
    const Measurement measured =
        MeasureRow(*rank.group, rank.control, **FindCollective("all_reduce"),
                   AllReduceCall(rank.control, 8), {}, config);
    EXPECT_EQ(measured.row.wrong, -1);
    EXPECT_EQ(measured.samples.wrong, -1);
  });
}

Series TwoRanks() {
  Series series;
  series.seconds = {{2e-3, 2e-3, 2e-3}, {1e-3, 4e-3, 1e-3}};
  series.start_seconds = {{0, 0.01, 0.02}, {0, 0.01, 0.02}};
  return series;
}

TEST(MeasureTest, ACallIsItsShareOfAnIteration) {
  Row row;
  row.bytes = 1000000;
  const Measurement measured =
      Assemble(row, TwoRanks(), /*rank=*/1, /*calls=*/2, /*bus_factor=*/1.5,
               MeasureConfig());
  EXPECT_DOUBLE_EQ(measured.row.time.median, 1e-3) << "half of the slowest's";
  EXPECT_DOUBLE_EQ(measured.row.time.max, 2e-3);
  EXPECT_NEAR(measured.row.algbw, 1, 1e-12) << "GB/s, decimal";
  EXPECT_NEAR(measured.row.busbw, 1.5, 1e-12);
  EXPECT_THAT(measured.samples.seconds, ElementsAre(1e-3, 4e-3, 1e-3));
  EXPECT_EQ(measured.samples.trips, 2);
}

TEST(MeasureTest, WithoutElementsThereIsNoBandwidth) {
  const Measurement measured =
      Assemble(Row(), TwoRanks(), 0, 1, 1, MeasureConfig());
  EXPECT_EQ(measured.row.algbw, 0);
  EXPECT_EQ(measured.row.busbw, 0);
}

}  // namespace
}  // namespace rankwise

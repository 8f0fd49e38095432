#include "comm_bench/sweep/measure_on.h"

#include <string>

#include "absl/status/status.h"
#include "comm_bench/collectives/collectives.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

const c10::Device kGpu(c10::kCUDA, 0);

std::string RefusalOnCpu(const BenchConfig& config) {
  const auto measure = MeasureOn(c10::kCPU, config);
  EXPECT_TRUE(absl::IsInvalidArgument(measure.status()));
  EXPECT_TRUE(MeasureOn(kGpu, config).ok());
  return std::string(measure.status().message());
}

TEST(MeasureOnTest, WhatOnlyAGpuCanIsRefusedByItsFlag) {
  BenchConfig config;
  config.layer = "nccl";
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--layer=nccl: "));
  config = {};
  config.timing = "events";
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--timing=events: "));
  config = {};
  config.measure.graph = true;
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--cuda_graph: "));
  config = {};
  config.measure.registered = true;
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--registered: "));
}

TEST(MeasureOnTest, TheHostTimesACpuAndEventsAGpu) {
  BenchConfig config;
  EXPECT_FALSE(MeasureOn(c10::kCPU, config)->events);
  EXPECT_FALSE(MeasureOn(c10::kCPU, config)->choices);
  EXPECT_TRUE(MeasureOn(kGpu, config)->events);
  EXPECT_TRUE(MeasureOn(kGpu, config)->choices);
  config.mode = "ladder";
  EXPECT_FALSE(MeasureOn(kGpu, config)->events) << "its rungs are the host's";
  config.timing = "events";
  EXPECT_TRUE(MeasureOn(kGpu, config)->events);
  config.mode = "sweep";
  config.timing = "host";
  EXPECT_FALSE(MeasureOn(kGpu, config)->events);
}

TEST(MeasureOnTest, EndsOnOneClockAreTheHosts) {
  BenchConfig config;
  config.measure.timing.across = Across::kTransfer;
  EXPECT_FALSE(MeasureOn(kGpu, config)->events);
  config.timing = "events";
  EXPECT_THAT(std::string(MeasureOn(kGpu, config).status().message()),
              HasSubstr("use --timing=host"));
}

TEST(CheckMemoryTest, NamesTheFlagAndTheLimit) {
  constexpr int64_t kGibi = 1 << 30;
  const auto all_reduce = FindCollective("all_reduce");
  const auto barrier = FindCollective("barrier");
  ASSERT_TRUE(all_reduce.ok() && barrier.ok());
  BenchConfig config;
  config.collectives = {*all_reduce};
  config.sizes = {8, 2 * kGibi};
  EXPECT_TRUE(CheckMemory(config, 2, 4 * kGibi).ok());
  EXPECT_TRUE(CheckMemory(config, 3, 0).ok()) << "not known";
  EXPECT_EQ(std::string(CheckMemory(config, 2, 3 * kGibi).message()),
            "--max_bytes: 2 GiB is above the limit of 1.5 GiB: the buffers of "
            "2 ranks must fit into this machine's memory");
  config.sizes_given = true;
  config.measure.in_flight = 4;
  EXPECT_EQ(std::string(CheckMemory(config, 1, 4 * kGibi).message()),
            "--sizes: 2 GiB is above the limit of 1 GiB: the buffers of 1 rank "
            "with --in_flight=4 must fit into this machine's memory");
  config.collectives = {*barrier};
  EXPECT_TRUE(CheckMemory(config, 1, kGibi).ok()) << "it has none";
}

TEST(MeasureOnTest, ChoicesMayBeLeftOut) {
  BenchConfig config;
  config.nccl_choices = false;
  EXPECT_FALSE(MeasureOn(kGpu, config)->choices);
}

}  // namespace
}  // namespace rankwise::comm_bench

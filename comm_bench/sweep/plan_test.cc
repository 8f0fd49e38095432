#include "comm_bench/sweep/plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "comm_bench/collectives/collective.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "records/record_writer.h"

namespace rankwise::comm_bench {
namespace {

using ::testing::HasSubstr;

using ::testing::ElementsAre;

const c10::Device kGpu(c10::kCUDA, 0);

Job On(c10::Device device) { return {.launcher = "nproc", .device = device}; }

BenchConfig AllReduce() {
  BenchConfig config;
  config.collectives = {*FindCollective("all_reduce")};
  config.sizes = {8};
  return config;
}

std::string RefusalOnCpu(const BenchConfig& config) {
  const absl::Status refused = MakePlan(config, On(c10::kCPU)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(MakePlan(config, On(kGpu)).ok());
  EXPECT_TRUE(MakePlan(config, {.launcher = "nproc"}).ok()) << "not known yet";
  return std::string(refused.message());
}

TEST(MeasureOnTest, WhatOnlyAGpuCanIsRefusedByItsFlag) {
  BenchConfig config = AllReduce();
  config.layer = "nccl";
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--layer=nccl: "));
  config = AllReduce();
  config.timing = "events";
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--timing=events: "));
  config = AllReduce();
  config.measure.graph = true;
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--cuda_graph: "));
  config = AllReduce();
  config.measure.registered = true;
  EXPECT_THAT(RefusalOnCpu(config), HasSubstr("--registered: "));
}

TEST(MeasureOnTest, TheHostTimesACpuAndEventsAGpu) {
  BenchConfig config = AllReduce();
  EXPECT_FALSE(MeasureOn(c10::kCPU, config).events);
  EXPECT_FALSE(MeasureOn(c10::kCPU, config).choices);
  EXPECT_TRUE(MeasureOn(kGpu, config).events);
  EXPECT_TRUE(MeasureOn(kGpu, config).choices);
  config.mode = "ladder";
  EXPECT_FALSE(MeasureOn(kGpu, config).events) << "its rungs are the host's";
  config.timing = "events";
  EXPECT_TRUE(MeasureOn(kGpu, config).events);
  config.mode = "sweep";
  config.timing = "host";
  EXPECT_FALSE(MeasureOn(kGpu, config).events);
}

TEST(MeasureOnTest, EndsOnOneClockAreTheHosts) {
  BenchConfig config = AllReduce();
  config.measure.timing.across = Across::kTransfer;
  EXPECT_FALSE(MeasureOn(kGpu, config).events);
  config.timing = "events";
  EXPECT_THAT(std::string(MakePlan(config, On(kGpu)).status().message()),
              HasSubstr("use --timing=host"));
}

std::string MemoryRefusal(const BenchConfig& config, int ranks,
                          int64_t memory_bytes) {
  Job job = On(c10::kCPU);
  job.ranks_of_host = ranks;
  job.memory_bytes = memory_bytes;
  return std::string(MakePlan(config, job).status().message());
}

TEST(MakePlanTest, MemoryNamesTheFlagAndTheLimit) {
  constexpr int64_t kGibi = 1 << 30;
  BenchConfig config = AllReduce();
  config.sizes = {8, 2 * kGibi};
  EXPECT_EQ(MemoryRefusal(config, 2, 4 * kGibi), "");
  EXPECT_EQ(MemoryRefusal(config, 3, 0), "") << "not known";
  EXPECT_EQ(MemoryRefusal(config, 2, 3 * kGibi),
            "--max_bytes: 2 GiB is above the limit of 1.5 GiB: the buffers of "
            "2 ranks must fit into this machine's memory");
  config.given = {"sizes"};
  config.measure.in_flight = 4;
  EXPECT_EQ(MemoryRefusal(config, 1, 4 * kGibi),
            "--sizes: 2 GiB is above the limit of 1 GiB: the buffers of 1 rank "
            "with --in_flight=4 must fit into this machine's memory");
  config.collectives = {*FindCollective("barrier")};
  EXPECT_EQ(MemoryRefusal(config, 1, kGibi), "") << "it has none";
}

TEST(MakePlanTest, WhatCannotRunIsRefusedOrLeftOut) {
  BenchConfig config = AllReduce();
  config.collectives = AllCollectives();
  config.measure.in_flight = 2;
  Job job = On(c10::kCPU);
  job.world_size = 2;
  EXPECT_EQ(std::string(MakePlan(config, job).status().message()),
            "ping_pong with --in_flight=2: a message waits for the one before "
            "it; leave out --in_flight");
  config.skip_unsupported = true;
  const auto plan = MakePlan(config, job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->cases.size(), 12u);
  EXPECT_EQ(plan->left_out.size(), 1u);
}

TEST(MakePlanTest, WhatNcclHasNotIsRefusedByName) {
  BenchConfig config = AllReduce();
  config.collectives = {*FindCollective("barrier")};
  config.layer = "nccl";
  EXPECT_EQ(std::string(MakePlan(config, On(kGpu)).status().message()),
            "barrier with --layer=nccl: nccl.h has no such call; measure it "
            "with --layer=c10d");
}

// A recording of one rank over gloo, in which units of `reduced` bytes each
// were reduced.
std::string Recording(const std::vector<int64_t>& reduced = {}) {
  const std::string path =
      testing::TempDir() + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name() +
      std::to_string(reduced.size()) + ".jsonl";
  RunRecord run;
  run.run_id = "run";
  run.binary = "ddp";
  run.backend = "gloo";
  run.world_size = 1;
  TrafficRecord traffic;
  traffic.step = 3;
  for (const int64_t bytes : reduced) {
    RecordedTransfer& event = traffic.events.emplace_back();
    event.op = "reduce_scatter";
    event.dtype = "float32";
    event.count = bytes / 4;
    event.bytes = bytes;
  }
  const auto writer = RecordWriter::Open(path).value();
  EXPECT_TRUE(writer->Write(Record(run)).ok());
  EXPECT_TRUE(writer->Write(Record(traffic)).ok());
  return path;
}

TEST(MakePlanTest, ARecordingOfOtherRanksOrOverGlooIsRefused) {
  BenchConfig config;
  config.mode = "replay";
  config.replay_file = Recording();
  const auto refusal = [&](const Job& job) {
    return std::string(MakePlan(config, job).status().message());
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(MakePlan(config, {})->recorded->steps.size(), 1u);
  EXPECT_THAT(refusal({.world_size = 2}),
              HasSubstr("recorded with 1 rank, and here are 2"));
  EXPECT_THAT(refusal({.backend = "nccl"}),
              HasSubstr(": recorded over gloo, whose order of messages may "
                        "block NCCL"));
  EXPECT_THAT(refusal({.backend = "fake"}), HasSubstr("--backend=fake"));
}

TEST(MakePlanTest, UnitsAreThoseOfTheFlagOrOfARecording) {
  BenchConfig config;
  config.mode = "units";
  const auto refusal = [&] {
    return std::string(MakePlan(config, {}).status().message());
  };
  EXPECT_THAT(refusal(), HasSubstr("needs --units"));
  config.replay_file = Recording();
  EXPECT_THAT(refusal(), HasSubstr(": holds no reduce_scatter"));
  config.replay_file = Recording({16, 8});
  EXPECT_THAT(MakePlan(config, {})->units, ElementsAre(8, 16))
      << "backward reduces the last first";
  config.units = {4};
  EXPECT_THAT(refusal(), HasSubstr("one of the two"));
  config.replay_file = "";
  EXPECT_THAT(MakePlan(config, {})->units, ElementsAre(4));
  config.compute_seconds = {1, 2};
  EXPECT_EQ(refusal(),
            "--compute_us: 2 numbers for 1 unit; give one, or one each");
}

TEST(MeasureOnTest, ChoicesMayBeLeftOut) {
  BenchConfig config = AllReduce();
  config.nccl_choices = false;
  EXPECT_FALSE(MeasureOn(kGpu, config).choices);
}

TEST(GeometricSizesTest, GeometricSizesEndWithTheLargest) {
  EXPECT_THAT(GeometricSizes(8, 64, 2), ElementsAre(8, 16, 32, 64));
  EXPECT_THAT(GeometricSizes(8, 100, 4), ElementsAre(8, 32, 100));
  EXPECT_THAT(GeometricSizes(8, 8, 2), ElementsAre(8));
  EXPECT_THAT(GeometricSizes(1, 4, 1.2), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace rankwise::comm_bench

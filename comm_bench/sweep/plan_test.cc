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

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const c10::Device kGpu(c10::kCUDA, 0);

Job On(c10::Device device) { return {.launcher = "nproc", .device = device}; }

BenchConfig AllReduce() {
  BenchConfig config;
  config.collectives = {*FindCollective("all_reduce")};
  config.sizes = {8};
  return config;
}

std::string RefusalOnCpu(const BenchConfig& config) {
  const absl::Status refused = MakeSweepPlan(config, On(c10::kCPU)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_TRUE(MakeSweepPlan(config, On(kGpu)).ok());
  EXPECT_TRUE(MakeSweepPlan(config, {.launcher = "nproc"}).ok())
      << "not known yet";
  return std::string(refused.message());
}

TEST(MakeSweepPlanTest, WhatABackendLacksIsRefusedOrLeftOut) {
  BenchConfig config = AllReduce();
  config.collectives = AllCollectives();
  config.dtypes = AllDtypes();
  config.ops = AllOps();
  config.skip_unsupported = true;
  const Plan gloo = *MakeSweepPlan(config, {.world_size = 2});
  const Plan mpi = *MakeSweepPlan(config, {.world_size = 2, .backend = "mpi"});
  // all_reduce, reduce_scatter and reduce with four floating-point types.
  EXPECT_EQ(mpi.cases.size() + 12, gloo.cases.size());
  EXPECT_EQ(mpi.left_out.size(), gloo.left_out.size() + 12);
  config = AllReduce();
  config.ops = {ReduceOp::AVG};
  EXPECT_EQ(MakeSweepPlan(config, {.world_size = 2, .backend = "mpi"})
                .status()
                .message(),
            "all_reduce of float32 with op avg: --backend=mpi reduces by sum, "
            "prod, min and max only; measure sum");
}

TEST(MakeNewGroupPlanTest, ManyGroupsAreRefusedAsTheyStayOpen) {
  BenchConfig config;
  config.measure.timing.iterations = 99;
  EXPECT_TRUE(MakeNewGroupPlan(config, {}).ok());
  config.measure.timing.iterations = 100;
  EXPECT_EQ(std::string(MakeNewGroupPlan(config, {}).status().message()),
            "--iterations=100 --warmup=1: at most 100 groups are made, as each "
            "stays open until the end");
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
  EXPECT_FALSE(MeasureLadderOn(kGpu, config).events)
      << "its rungs are the host's";
  config.timing = "events";
  EXPECT_TRUE(MeasureOn(kGpu, config).events);
  EXPECT_TRUE(MeasureLadderOn(kGpu, config).events);
  config.timing = "host";
  EXPECT_FALSE(MeasureOn(kGpu, config).events);
}

TEST(MeasureOnTest, EndsOnOneClockAreTheHosts) {
  BenchConfig config = AllReduce();
  config.measure.timing.across = Across::kTransfer;
  EXPECT_FALSE(MeasureOn(kGpu, config).events);
  config.timing = "events";
  EXPECT_THAT(std::string(MakeSweepPlan(config, On(kGpu)).status().message()),
              HasSubstr("use --timing=host"));
}

std::string MemoryRefusal(const BenchConfig& config, int ranks,
                          int64_t memory_bytes) {
  Job job = On(c10::kCPU);
  job.ranks_of_host = ranks;
  job.memory_bytes = memory_bytes;
  const bool units = !config.units.empty() || !config.replay_file.empty();
  const auto make = units ? MakeUnitsPlan : MakeSweepPlan;
  return std::string(make(config, job).status().message());
}

TEST(MakeSweepPlanTest, MemoryNamesTheFlagAndTheLimit) {
  constexpr int64_t kGibi = 1 << 30;
  BenchConfig config = AllReduce();
  config.sizes = {8, 2 * kGibi};
  EXPECT_EQ(MemoryRefusal(config, 2, 4 * kGibi), "");
  EXPECT_EQ(MemoryRefusal(config, 3, 0), "") << "not known";
  EXPECT_EQ(MemoryRefusal(config, 2, 3 * kGibi),
            "--max_bytes: 2 GiB is above the limit of 1.5 GiB: the buffers of "
            "2 ranks must fit into this machine's memory");
  config.sizes_given = true;
  config.measure.in_flight = 4;
  EXPECT_EQ(MemoryRefusal(config, 1, 4 * kGibi),
            "--sizes: 2 GiB is above the limit of 1 GiB: the buffers of 1 rank "
            "with --in_flight=4 must fit into this machine's memory");
  config.collectives = {*FindCollective("barrier")};
  EXPECT_EQ(MemoryRefusal(config, 1, kGibi), "") << "it has none";
}

TEST(MakeSweepPlanTest, RanksThatAreThreadsAreLimited) {
  const auto refusal = [](const char* backend, int ranks) {
    const Job job = {.world_size = ranks, .backend = backend};
    return std::string(MakeSweepPlan(AllReduce(), job).status().message());
  };
  EXPECT_EQ(refusal("fake", 10'000), "");
  EXPECT_EQ(refusal("gloo", 10'001), "");
  EXPECT_EQ(refusal("fake", 10'001),
            "--fake_world_size=10001: above the limit of 10000: comm_bench "
            "runs every rank of --backend=fake as a thread of this process");
}

TEST(MakeSweepPlanTest, ThreadsTakeMemoryNextToTheirBuffers) {
  constexpr int64_t kMebi = 1 << 20;
  BenchConfig config = AllReduce();
  config.sizes = {64 << 10};
  Job job = {.world_size = 1024,
             .ranks_of_host = 1024,
             .backend = "fake",
             .device = c10::kCPU};
  const auto refusal = [&](int64_t memory_bytes) {
    job.memory_bytes = memory_bytes;
    return std::string(MakeSweepPlan(config, job).status().message());
  };
  EXPECT_EQ(refusal(144 * kMebi), "");
  EXPECT_THAT(refusal(143 * kMebi), HasSubstr(" 64 KiB is above the limit of"));
  EXPECT_EQ(refusal(79 * kMebi),
            "--fake_world_size=1024: the ranks' threads take 80 MiB, above "
            "this machine's memory of 79 MiB");
}

TEST(MakeUnitsPlanTest, MemoryIsThatOfAllUnitsAtATime) {
  constexpr int64_t kMebi = 1 << 20;
  BenchConfig config;
  config.units = {kMebi, kMebi, 4 * kMebi, kMebi, kMebi, kMebi};
  config.prefetch = 0;  // two at a time
  EXPECT_EQ(MemoryRefusal(config, 1, 5 * kMebi), "");
  EXPECT_EQ(MemoryRefusal(config, 1, 4 * kMebi),
            "--units: 5 MiB at a time is above the limit of 4 MiB: the buffers "
            "of 1 rank must fit into this machine's memory");
  config.prefetch = 1;
  EXPECT_EQ(MemoryRefusal(config, 2, 14 * kMebi), "");
  EXPECT_THAT(MemoryRefusal(config, 2, 12 * kMebi), HasSubstr(" 7 MiB at "));
  config.prefetch = 100;
  EXPECT_THAT(MemoryRefusal(config, 1, 8 * kMebi), HasSubstr(" 9 MiB at "));
  config.zero = 2;
  config.prefetch = 0;
  EXPECT_EQ(MemoryRefusal(config, 1, 13 * kMebi), "");
  EXPECT_THAT(MemoryRefusal(config, 1, 12 * kMebi), HasSubstr(" 13 MiB at "));
  config.units = {int64_t{1} << 62, int64_t{1} << 62, int64_t{1} << 62};
  EXPECT_THAT(MemoryRefusal(config, 1, kMebi), HasSubstr(" GiB at a time"));
}

TEST(MakeSweepPlanTest, WhatCannotRunIsRefusedOrLeftOut) {
  BenchConfig config = AllReduce();
  config.collectives = AllCollectives();
  config.measure.in_flight = 2;
  Job job = On(c10::kCPU);
  job.world_size = 2;
  EXPECT_EQ(std::string(MakeSweepPlan(config, job).status().message()),
            "ping_pong with --in_flight=2: a message waits for the one before "
            "it; leave out --in_flight");
  config.skip_unsupported = true;
  const auto plan = MakeSweepPlan(config, job);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->cases.size(), 12u);
  EXPECT_EQ(plan->left_out.size(), 1u);
}

TEST(MakeSweepPlanTest, WhatNcclHasNotIsRefusedByName) {
  BenchConfig config = AllReduce();
  config.collectives = {*FindCollective("barrier")};
  config.layer = "nccl";
  EXPECT_EQ(std::string(MakeSweepPlan(config, On(kGpu)).status().message()),
            "barrier with --layer=nccl: nccl.h has no such call; measure it "
            "with --layer=c10d");
}

RunRecord FsdpRun() {
  RunRecord run;
  run.run_id = "run";
  run.binary = "fsdp";
  run.backend = "gloo";
  return run;
}

RecordedTransfer ReduceScatter(int64_t bytes) {
  RecordedTransfer event;
  event.op = "reduce_scatter";
  event.dtype = "float32";
  event.count = bytes / 4;
  event.bytes = bytes;
  return event;
}

// Writes a new recording, in which rank 0 made these calls.
std::string Recording(RunRecord run,
                      const std::vector<RecordedTransfer>& events = {}) {
  static int number = 0;
  const std::string path =
      testing::TempDir() + "/" +
      testing::UnitTest::GetInstance()->current_test_info()->name() +
      std::to_string(++number) + ".jsonl";
  const auto writer = RecordWriter::Open(path).value();
  for (int64_t rank = 0; rank < run.world_size; ++rank) {
    run.rank = rank;
    EXPECT_TRUE(writer->Write(Record(run)).ok());
    TrafficRecord traffic;
    traffic.rank = rank;
    traffic.step = 3;
    if (rank == 0) traffic.events = events;
    EXPECT_TRUE(writer->Write(Record(traffic)).ok());
  }
  return path;
}

TEST(MakeReplayPlanTest, ARecordingOfOtherRanksOrOverGlooIsRefused) {
  BenchConfig config;
  config.replay_file = Recording(FsdpRun());
  const auto refusal = [&](const Job& job) {
    return std::string(MakeReplayPlan(config, job).status().message());
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(MakeReplayPlan(config, {})->recorded->steps.size(), 1u);
  EXPECT_THAT(refusal({.world_size = 2}),
              HasSubstr("recorded with 1 rank, and here are 2"));
  EXPECT_THAT(refusal({.backend = "nccl"}),
              HasSubstr(": recorded over gloo, whose order of messages may "
                        "block NCCL"));
  EXPECT_THAT(refusal({.backend = "fake"}), HasSubstr("--backend=fake"));
}

TEST(MakeUnitsPlanTest, UnitsAreThoseOfTheFlagOrOfARecording) {
  BenchConfig config;
  const auto refusal = [&] {
    return std::string(MakeUnitsPlan(config, {}).status().message());
  };
  EXPECT_THAT(refusal(), HasSubstr("needs --units"));
  config.replay_file = Recording(FsdpRun());
  EXPECT_THAT(refusal(), HasSubstr(": holds no reduce_scatter"));
  config.replay_file =
      Recording(FsdpRun(), {ReduceScatter(16), ReduceScatter(8)});
  EXPECT_THAT(MakeUnitsPlan(config, {})->units, ElementsAre(8, 16))
      << "backward reduces the last first";
  config.units = {4};
  EXPECT_THAT(refusal(), HasSubstr("one of the two"));
  config.replay_file = "";
  EXPECT_THAT(MakeUnitsPlan(config, {})->units, ElementsAre(4));
  config.compute_seconds = {1, 2};
  EXPECT_EQ(refusal(),
            "--compute_us: 2 numbers for 1 unit; give one, or one each");
}

TEST(MakeUnitsPlanTest, RecordedUnitsMustFitToo) {
  BenchConfig config;
  config.replay_file =
      Recording(FsdpRun(), {ReduceScatter(1 << 20), ReduceScatter(1 << 20)});
  EXPECT_EQ(MemoryRefusal(config, 1, 2 << 20), "");
  EXPECT_THAT(MemoryRefusal(config, 1, 1 << 20),
              StartsWith("--replay: 2 MiB at a time is above the limit of "));
}

// Returns why a recording does not determine the units.
std::string UnitsRefusal(const RunRecord& run, const RecordedTransfer& event) {
  BenchConfig config;
  config.replay_file = Recording(run, {event});
  const Job job = {.world_size = static_cast<int>(run.world_size)};
  return std::string(MakeUnitsPlan(config, job).status().message());
}

TEST(MakeUnitsPlanTest, UnitsAreNotReadFromWhatIsReducedOtherwise) {
  RunRecord run = FsdpRun();
  EXPECT_EQ(UnitsRefusal(run, ReduceScatter(8)), "");
  run.binary = "hybrid";
  EXPECT_THAT(UnitsRefusal(run, ReduceScatter(8)),
              HasSubstr(": recorded by hybrid; record a run of "
                        "//trainers:fsdp, or give --units"));
  run = FsdpRun();
  run.flags = {{"reduce_every_microbatch", "true"}};
  EXPECT_THAT(UnitsRefusal(run, ReduceScatter(8)),
              HasSubstr(": recorded with --reduce_every_microbatch"));
  RecordedTransfer gather = ReduceScatter(8);
  gather.op = "all_gather";
  gather.dtype = "bfloat16";
  gather.count = 4;
  EXPECT_THAT(UnitsRefusal(FsdpRun(), gather),
              HasSubstr(": holds all_gather of bfloat16"));
  run = FsdpRun();
  run.world_size = 2;
  RecordedTransfer some = ReduceScatter(8);
  some.ranks = {0};
  EXPECT_THAT(UnitsRefusal(run, some),
              HasSubstr(": holds reduce_scatter among 1 of 2 ranks"));
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

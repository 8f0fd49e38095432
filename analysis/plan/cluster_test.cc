#include "analysis/plan/cluster.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/plan/recorded_machine.h"
#include "analysis/plan/step.h"
#include "analysis/runs/trace_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise::plan {
namespace {

using ::testing::HasSubstr;

constexpr char kFile[] = R"({
  "format": "rankwise cluster", "version": 1, "name": "four",
  "devices_per_node": 4,
  "device": {"peak_tflops": 100, "memory_gb": 40, "memory_gb_per_second": 1000,
             "efficiency": {"most": 0.5, "scale_gflop": 10}},
  "intra_node": {"latency_us": 1, "gb_per_second": 100},
  "inter_node": {"latency_us": 10, "gb_per_second_of_node": 40}
})";

double Seconds(const Cluster& cluster, const char* collective, double bytes,
               const Line& line) {
  return CollectiveSeconds(cluster, collective, bytes, line, CostSide::kMiddle);
}

TEST(EfficiencyCurveTest, GrowsWithTheProduct) {
  const EfficiencyCurve curve{0.8, 3e9};
  EXPECT_DOUBLE_EQ(curve.At(1e9), 0.4);
  EXPECT_NEAR(curve.At(1e15), 0.8, 1e-5);
  EXPECT_DOUBLE_EQ(EfficiencyCurve().At(0), 1);
}

TEST(ClusterFromJsonTest, ReadsWhatIsStated) {
  const Cluster cluster = *ClusterFromJson(kFile);
  EXPECT_EQ(cluster.name, "four");
  EXPECT_EQ(cluster.devices_per_node, 4);
  EXPECT_DOUBLE_EQ(cluster.device.peak_flops, 100e12);
  EXPECT_DOUBLE_EQ(cluster.device.memory_bytes, 40e9);
  EXPECT_DOUBLE_EQ(cluster.device.efficiency.At(10e9 / 3), 0.25);
}

TEST(ClusterFromJsonTest, NamesWhatIsBroken) {
  const std::pair<const char*, const char*> replaced[] = {
      {"\"memory_gb\": 40", "/device/memory_gb"},
      {"\"latency_us\": 10", "/inter_node/latency_us"},
      {"\"most\": 0.5", "/device/efficiency/most"},
      {"\"devices_per_node\": 4", "/devices_per_node"}};
  for (const auto& [field, pointer] : replaced) {
    const std::string name(field, std::string(field).find(':') + 1);
    const std::string text =
        absl::StrReplaceAll(kFile, {{field, name + " -1"}});
    EXPECT_THAT(std::string(ClusterFromJson(text).status().message()),
                HasSubstr(pointer));
  }
  const std::string half = absl::StrReplaceAll(
      kFile, {{"\"devices_per_node\": 4", "\"devices_per_node\": 4.5"}});
  EXPECT_THAT(std::string(ClusterFromJson(half).status().message()),
              HasSubstr("must be a whole number"));
  const std::string above =
      absl::StrReplaceAll(kFile, {{"\"most\": 0.5", "\"most\": 1.5"}});
  EXPECT_THAT(std::string(ClusterFromJson(above).status().message()),
              HasSubstr("must be at most 1"));
  for (const char* text : {"", "[]", "{}", "{\"format\":", "{\"format\": 1}"}) {
    EXPECT_THAT(std::string(ClusterFromJson(text).status().message()),
                HasSubstr("not a cluster's file"));
  }
  const std::string missing =
      absl::StrReplaceAll(kFile, {{"intra_node", "inter_nodes"}});
  EXPECT_THAT(std::string(ClusterFromJson(missing).status().message()),
              HasSubstr("intra_node"));
}

TEST(ClusterFromJsonTest, RefusesNumbersThatNoClusterHas) {
  for (const char* number : {"1e300", "1e-300", "0", "true", "\"1\""}) {
    for (const char* key :
         {"peak_tflops", "memory_gb", "memory_gb_per_second", "scale_gflop",
          "latency_us", "gb_per_second", "gb_per_second_of_node"}) {
      const std::string quoted = absl::StrCat("\"", key, "\": ");
      const std::string text = absl::StrReplaceAll(
          kFile, {{quoted, absl::StrCat(quoted, number, ", \"unread\": ")}});
      ASSERT_NE(text, kFile);
      EXPECT_THAT(std::string(ClusterFromJson(text).status().message()),
                  HasSubstr(absl::StrCat(
                      "/", key, ") must be a number above 0, from 1e-9")))
          << number;
    }
  }
}

TEST(ClusterFromJsonTest, NamesKeysThatItDoesNotKnow) {
  for (const char* key : {"format", "peak_tflops", "most", "gb_per_second",
                          "latency_us", "gb_per_second_of_node"}) {
    const std::string text = absl::StrReplaceAll(
        kFile, {{absl::StrCat("\"", key, "\": "),
                 absl::StrCat("\"eficiency\": 1, \"", key, "\": ")}});
    ASSERT_NE(text, kFile);
    EXPECT_THAT(std::string(ClusterFromJson(text).status().message()),
                HasSubstr("has the unknown key \"eficiency\"; known are "));
  }
}

TEST(ClusterFromJsonTest, TheFileMayComeFromAnotherSystem) {
  const std::string text = absl::StrCat(
      "\xef\xbb\xbf", absl::StrReplaceAll(kFile, {{"\n", "\r\n"}}));
  EXPECT_TRUE(ClusterFromJson(text).ok());
}

TEST(ClusterFromJsonTest, TheNameIsPrintable) {
  const std::string escape =
      absl::StrReplaceAll(kFile, {{"\"four\"", "\"four\\u001b[2J\""}});
  EXPECT_THAT(std::string(ClusterFromJson(escape).status().message()),
              HasSubstr("(/name) must not hold control characters"));
  const std::string number = absl::StrReplaceAll(kFile, {{"\"four\"", "4"}});
  EXPECT_THAT(std::string(ClusterFromJson(number).status().message()),
              HasSubstr("(/name) type must be string"));
  const std::string none =
      absl::StrReplaceAll(kFile, {{"\"name\": \"four\",", ""}});
  EXPECT_EQ(ClusterFromJson(none)->name, "cluster");
}

TEST(LineAlongTest, NeighboursShareANode) {
  const Cluster cluster = *ClusterFromJson(kFile);
  EXPECT_EQ(LineAlong(cluster, 4, 1).nodes(), 1);
  EXPECT_EQ(LineAlong(cluster, 8, 1).nodes(), 2);
  EXPECT_EQ(LineAlong(cluster, 2, 2).nodes(), 1);
  EXPECT_EQ(LineAlong(cluster, 2, 4).nodes(), 2);
  EXPECT_EQ(LineAlong(cluster, 3, 100).nodes(), 3);
}

TEST(CollectiveSecondsTest, ARingWithinANode) {
  const Cluster cluster = *ClusterFromJson(kFile);
  const Line line = LineAlong(cluster, 4, 1);
  // 2 (n - 1) messages of 1/n of the bytes.
  EXPECT_NEAR(Seconds(cluster, "all_reduce", 1e9, line),
              6 * (1e-6 + 0.25e9 / 100e9), 1e-12);
  EXPECT_NEAR(Seconds(cluster, "all_gather", 1e9, line),
              3 * (1e-6 + 0.25e9 / 100e9), 1e-12);
  EXPECT_NEAR(Seconds(cluster, "ping_pong", 1e9, line), 1e-6 + 0.01, 1e-12);
  EXPECT_EQ(Seconds(cluster, "all_reduce", 1e9, {1, 1}), 0);
}

TEST(CollectiveSecondsTest, LinesShareTheLinksOfANode) {
  const Cluster cluster = *ClusterFromJson(kFile);
  // Every device has a quarter of 40 GB/s.
  const Line line = LineAlong(cluster, 2, 4);
  EXPECT_NEAR(Seconds(cluster, "all_reduce", 1e9, line),
              2 * (10e-6 + 0.5e9 / 10e9), 1e-9);
  // A line of all devices has all of it.
  EXPECT_NEAR(Seconds(cluster, "all_reduce", 1e9, LineAlong(cluster, 8, 1)),
              14 * (10e-6 + 0.125e9 / 40e9), 1e-9);
  EXPECT_NEAR(Seconds(cluster, "ping_pong", 1e9, line), 10e-6 + 0.1, 1e-9);
}

TEST(CollectiveSecondsTest, LinksWithinANodeAreNotShared) {
  Cluster cluster;
  cluster.devices_per_node = 8;
  cluster.network = StatedNetwork({1e-6, 20e9, 10e-6, 50e9});
  // One device per node, with an eighth of the node's links.
  EXPECT_NEAR(Seconds(cluster, "all_reduce", 1e9, LineAlong(cluster, 2, 8)),
              2 * (10e-6 + 0.5e9 / (50e9 / 8)), 1e-9);
  // All devices of both nodes: the links within a node are slower.
  EXPECT_NEAR(Seconds(cluster, "all_reduce", 1e9, LineAlong(cluster, 16, 1)),
              30 * (1e-6 + 1e9 / 16 / 20e9), 1e-9);
}

TEST(NamedClusterTest, KnowsTheirNames) {
  for (const std::string& name : ClusterNames()) {
    const auto cluster = NamedCluster(name);
    ASSERT_TRUE(cluster.ok());
    EXPECT_TRUE(CheckNetwork(*cluster).ok());
  }
  EXPECT_THAT(std::string(NamedCluster("dgx").status().message()),
              HasSubstr("h100-superpod"));
}

// A run of nano whose steps compute for `seconds` on every rank.
RunTrace NanoRun(RunForTest config, int64_t batch, double seconds) {
  config.batch_size = batch;
  RunTrace run = MakeRun(config);
  for (RankTrace& rank : run.ranks) {
    rank.run.forward_flops_per_example = NamedModel("nano")->ForwardFlops();
    rank.run.host.memory_bytes = 16'000'000'000;
    rank.run.host.cores = 2;
    rank.run.devices = {"cpu"};
    rank.run.flags["model"] = "gpt";
    rank.run.flags["precision"] = "fp32";
    for (StepRecord& step : rank.steps) {
      step.step_seconds = seconds;
      step.exposed_comm_seconds = step.data_wait_seconds = 0;
      step.optimizer_seconds = 0;
    }
  }
  return run;
}

double PlannedSeconds(const Cluster& cluster, int64_t batch) {
  StepModel steps =
      *StepModel::Create({*NamedModel("nano"), *OwnEngine("fp32"), cluster});
  return steps.Quick({.micro_batch = batch})->step_seconds;
}

absl::StatusOr<Cluster> ClusterFromRecords(absl::Span<const RunTrace> runs,
                                           const RecordedSize& size = {},
                                           const RecordedRuns& which = {}) {
  return RecordedMachine(runs, which).ClusterFor(size);
}

std::vector<RunTrace> NanoRuns() {
  BenchRunForTest bench;
  bench.collectives = {"all_reduce", "ping_pong"};
  const RunForTest single = {.binary = "single", .run_id = "one"};
  RunForTest other = single;
  other.run_id = "other";
  RunTrace two = NanoRun({.world_size = 2, .run_id = "two"}, 8, 0.15);
  for (RankTrace& rank : two.ranks)
    rank.run.flags["skip_communication"] = "true";
  return {NanoRun(single, 2, 0.03), NanoRun(other, 8, 0.09), two,
          MakeBenchRun(bench)};
}

TEST(ClusterFromRecordsTest, WarnsWhereThreadsOutnumberCores) {
  const auto two = ClusterFromRecords(NanoRuns(), {.ranks = 2}),
             four = ClusterFromRecords(NanoRuns(),
                                       {.ranks = 4, .devices_per_node = 4}),
             on_two_hosts = ClusterFromRecords(
                 NanoRuns(), {.ranks = 4, .devices_per_node = 2});
  ASSERT_TRUE(two.ok() && four.ok() && on_two_hosts.ok());
  EXPECT_EQ(ShortCoresText(*two), "");
  EXPECT_THAT(ShortCoresText(*four), HasSubstr("may not be scheduled"));
  EXPECT_EQ(ShortCoresText(*on_two_hosts), "");
}

TEST(ClusterFromRecordsTest, SeparatesKernelsFromWhatTheyCompute) {
  const auto cluster = ClusterFromRecords(NanoRuns(), {.ranks = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NEAR(PlannedSeconds(*cluster, 2), 0.03, 1e-9);
  EXPECT_NEAR(PlannedSeconds(*cluster, 8), 0.09, 1e-9);
  // 10 ms per step, and 10 ms per example.
  EXPECT_NEAR(PlannedSeconds(*cluster, 16), 0.17, 1e-9);
  EXPECT_EQ(cluster->speed_during_communication, 1);
  EXPECT_NEAR(cluster->deviation, 0, 1e-9);
}

TEST(ClusterFromRecordsTest, ComputesAsSlowlyAsSoManyRanksDo) {
  const auto cluster = ClusterFromRecords(NanoRuns(), {.ranks = 2});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NEAR(PlannedSeconds(*cluster, 8), 0.15, 1e-9);
  EXPECT_EQ(cluster->devices_per_node, 2);
  EXPECT_DOUBLE_EQ(cluster->device.memory_bytes, 8e9);
  // Two ranks keep both cores busy.
  EXPECT_EQ(cluster->speed_during_communication, 0);
  EXPECT_TRUE(CheckNetwork(*cluster).ok());
}

TEST(ClusterFromRecordsTest, NamesTheKindOfDevice) {
  std::vector<RunTrace> runs = NanoRuns();
  EXPECT_TRUE(ClusterFromRecords(runs)->device.is_cpu);
  for (RunTrace& run : runs) {
    for (RankTrace& rank : run.ranks) rank.run.devices = {"cuda:0"};
  }
  EXPECT_FALSE(ClusterFromRecords(runs)->device.is_cpu);
  EXPECT_EQ(ClusterFromRecords(runs)->device.memory_bytes, 0)
      << "the host's memory is not the GPU's";
}

TEST(ClusterFromRecordsTest, TakesRunsOfOnePrecision) {
  std::vector<RunTrace> runs = NanoRuns();
  RunTrace twice_as_fast =
      NanoRun({.binary = "single", .run_id = "bf16"}, 8, 0.045);
  twice_as_fast.ranks[0].run.flags["precision"] = "bf16";
  runs.push_back(twice_as_fast);
  const auto fp32 = ClusterFromRecords(runs, {.ranks = 1, .precision = "fp32"});
  ASSERT_TRUE(fp32.ok()) << fp32.status();
  EXPECT_NEAR(PlannedSeconds(*fp32, 8), 0.09, 1e-9);
  runs.pop_back();
  EXPECT_THAT(
      std::string(
          ClusterFromRecords(runs, {.precision = "bf16"}).status().message()),
      HasSubstr("no run of single, ddp or fsdp with --precision=bf16"));
}

TEST(ClusterFromRecordsTest, RefusesCpusAndGpusInOne) {
  std::vector<RunTrace> runs = NanoRuns();
  runs[0].ranks[0].run.devices = {"cuda:0"};
  EXPECT_THAT(std::string(ClusterFromRecords(runs).status().message()),
              HasSubstr("some runs ran on CPUs and some on GPUs"));
}

TEST(ClusterFromRecordsTest, MoreRanksShareAHostsMemory) {
  const auto cluster =
      ClusterFromRecords(NanoRuns(), {.ranks = 4, .devices_per_node = 4});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_EQ(cluster->devices_per_node, 4);
  EXPECT_DOUBLE_EQ(cluster->device.memory_bytes, 4e9);
}

TEST(ClusterFromRecordsTest, TakesTheOverlapThatWasMeasured) {
  std::vector<RunTrace> runs = NanoRuns();
  OverlapRecord record;
  record.collective = "all_reduce";
  record.compute_seconds = {0.02, 0.02};
  record.comm_seconds = {0.010, 0.010};
  record.both_seconds = {0.024, 0.024};
  for (RankTrace& rank : runs.back().ranks) rank.overlaps = {record};
  EXPECT_NEAR(
      ClusterFromRecords(runs, {.ranks = 2})->speed_during_communication, 0.6,
      1e-9);
  // Overlapped, they take longer than one after the other.
  for (RankTrace& rank : runs.back().ranks)
    rank.overlaps[0].both_seconds = {0.05, 0.05};
  EXPECT_EQ(ClusterFromRecords(runs, {.ranks = 2})->speed_during_communication,
            0);
}

TEST(ClusterFromRecordsTest, RunsThatExchangeAreTakenOnlyWhereAskedFor) {
  std::vector<RunTrace> runs = NanoRuns();
  for (RankTrace& rank : runs[2].ranks)
    rank.run.flags.erase("skip_communication");
  const auto all = ClusterFromRecords(runs, {.ranks = 2});
  EXPECT_NEAR(PlannedSeconds(*all, 8), 0.15, 1e-9);
  const auto quiet =
      ClusterFromRecords(runs, {.ranks = 2}, {.most_exchanging_ranks = 0});
  EXPECT_NEAR(PlannedSeconds(*quiet, 8), 0.09, 1e-9);
}

TEST(ClusterFromRecordsTest, LeavesOutTheWarmUp) {
  std::vector<RunTrace> runs = NanoRuns();
  for (StepRecord& step : runs[0].ranks[0].steps) {
    if (step.step <= 15) step.step_seconds *= 10;
  }
  const auto cluster = ClusterFromRecords(runs, {.ranks = 1},
                                          {.throughput = {.warmup_steps = 15}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NEAR(PlannedSeconds(*cluster, 2), 0.03, 1e-9);
}

// Continues a run from the checkpoint of step `step`.
RunTrace ResumedAfter(int64_t step, RunTrace run) {
  for (RankTrace& rank : run.ranks) {
    for (StepRecord& each : rank.steps) each.step += step;
  }
  return run;
}

TEST(ClusterFromRecordsTest, PartsOfOneJobAreOneRepetition) {
  const RunForTest single = {.binary = "single", .run_id = "job"};
  RunForTest longest = single, other = single;
  longest.steps = 40;
  other.run_id = "other";
  // A job in two parts with 0.03 s and 0.05 s per step, and another job.
  std::vector<RunTrace> runs = {NanoRun(single, 2, 0.03),
                                ResumedAfter(20, NanoRun(longest, 2, 0.05)),
                                NanoRun(other, 2, 0.2), NanoRuns().back()};
  const auto cluster = ClusterFromRecords(runs, {.ranks = 1});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  EXPECT_NEAR(PlannedSeconds(*cluster, 2), 0.1, 1e-9);
}

TEST(ClusterFromRecordsTest, NamesTheRunThatItCannotUse) {
  std::vector<RunTrace> runs = NanoRuns();
  runs.erase(runs.begin() + 1, runs.begin() + 3);
  EXPECT_EQ(ClusterFromRecords(runs, {}, {.throughput = {.warmup_steps = 18}})
                .status()
                .message(),
            "one.jsonl: 20 steps leave 2 after 18 of warm-up, and at least 5 "
            "are needed");
  runs[0].ranks[0].run.flags["context"] = "ulysses";
  EXPECT_EQ(ClusterFromRecords(runs).status().message(),
            "one.jsonl: --context=ulysses is not planned");
}

TEST(ClusterFromRecordsTest, NeedsWhatCommunicationCosts) {
  std::vector<RunTrace> runs = NanoRuns();
  runs.pop_back();
  EXPECT_THAT(std::string(ClusterFromRecords(runs).status().message()),
              HasSubstr("comm_bench"));
}

TEST(ClusterFromRecordsTest, SaysWhatToRecord) {
  EXPECT_THAT(std::string(ClusterFromRecords({}).status().message()),
              HasSubstr("//trainers:ddp"));
}

}  // namespace
}  // namespace rankwise::plan

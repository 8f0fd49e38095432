#include "analysis/compare/record_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "analysis/runs/trace_for_test.h"
#include "records/record_writer.h"
#include "records/run_origin.h"

namespace rankwise {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

namespace fs = std::filesystem;

std::string EmptyFolder() {
  const fs::path folder =
      fs::path(testing::TempDir()) /
      testing::UnitTest::GetInstance()->current_test_info()->name();
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder.string();
}

void WriteRun(const std::string& path, const RunTrace& run) {
  auto writer = RecordWriter::Open(path);
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const RankTrace& trace : run.ranks) {
    ASSERT_TRUE((*writer)->Write(Record(trace.run)).ok());
    ASSERT_TRUE((*writer)->Write(trace.steps).ok());
  }
}

TEST(LoadRecordSet, ReadsAFileOrAFolder) {
  const std::string folder = EmptyFolder();
  WriteRun(folder + "/a.jsonl", MakeRun({.world_size = 2, .run_id = "1"}));
  WriteRun(folder + "/b.jsonl", MakeRun({.world_size = 2, .run_id = "2"}));
  const auto both = LoadRecordSet(folder, {});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->runs, 2u);
  ASSERT_EQ(both->configurations.size(), 1u);
  EXPECT_EQ(both->configurations[0].samples.at("step_seconds").size(), 2u);
  EXPECT_THAT(both->made_by,
              ElementsAre("an unknown commit, torch 2.11.0, A CPU"));
  EXPECT_EQ(LoadRecordSet(folder + "/a.jsonl", {})->runs, 1u);
}

TEST(MeasureRecordSet, CountsTheJobsThatRunsArePartsOf) {
  std::vector<RunTrace> runs = {MakeRun({.run_id = "job"}),
                                MakeRun({.run_id = "job"}),
                                MakeRun({.run_id = "other"})};
  for (StepRecord& step : runs[1].ranks[0].steps) step.step += 20;
  const RecordSet set = MeasureRecordSet(runs, {});
  EXPECT_EQ(set.runs, 3u);
  EXPECT_EQ(set.jobs, 2u);
}

TEST(MeasureRecordSet, AnotherCpuIsAnotherConfiguration) {
  RunTrace moved = MakeRun({.world_size = 2});
  for (RankTrace& trace : moved.ranks) trace.run.host.cpu_model = "B CPU";
  const RecordSet set =
      MeasureRecordSet({MakeRun({.world_size = 2}), moved}, {});
  ASSERT_EQ(set.configurations.size(), 2u);
  EXPECT_EQ(set.configurations[0].name, "ddp on 2 ranks, batch 64, A CPU");
  EXPECT_EQ(set.configurations[1].name, "ddp on 2 ranks, batch 64, B CPU");
}

TEST(MeasureRecordSet, ParameterServersDoNotDiluteTheWorkersSeconds) {
  RunTrace run = MakeRun({.binary = "parameter_server", .world_size = 3});
  run.ranks[0].updates.emplace_back();  // a server
  for (StepRecord& step : run.ranks[0].steps) {
    step.exposed_comm_seconds = step.data_wait_seconds = 0;
  }
  const RecordSet set = MeasureRecordSet({run}, {});
  ASSERT_EQ(set.configurations.size(), 1u);
  const auto& samples = set.configurations[0].samples;
  EXPECT_NEAR(samples.at("comm_wait_seconds")[0], 0.01, 1e-12);
  EXPECT_NEAR(samples.at("data_wait_seconds")[0], 0.005, 1e-12);
}

TEST(CheckCode, RefusesRepetitionsOfDifferentOrUnknownCode) {
  std::vector<RunTrace> runs(2, MakeRun({}));
  RecordSet set = MeasureRecordSet(runs, {});
  set.path = "before";
  EXPECT_TRUE(CheckCode(set).ok()) << CheckCode(set);
  runs[1].ranks[0].run.source_hash = "b";
  EXPECT_THAT(CheckCode(MeasureRecordSet(runs, {})).message(),
              HasSubstr("different code (source 0123456789abcdef with torch "
                        "2.11.0, source b with torch 2.11.0); --force"));
  for (RunTrace& run : runs) run.ranks[0].run.source_hash = "";
  EXPECT_THAT(CheckCode(MeasureRecordSet(runs, {})).message(),
              HasSubstr("ran code that their records do not name; --force"));
}

TEST(LoadRecordSet, RefusesWhatHoldsNothing) {
  const std::string folder = EmptyFolder();
  EXPECT_THAT(LoadRecordSet(folder, {}).status().message(), HasSubstr(folder));
  EXPECT_THAT(LoadRecordSet(folder + "/none", {}).status().message(),
              HasSubstr(folder + "/none"));
  std::ofstream(folder + "/broken.jsonl") << "{\"kind\":\"ru\"}\n";
  EXPECT_THAT(LoadRecordSet(folder, {}).status().message(),
              HasSubstr("broken.jsonl"));
}

TEST(LoadRecordSet, SaysWhyNothingCanBeMeasured) {
  const std::string folder = EmptyFolder();
  WriteRun(folder + "/short.jsonl", MakeRun({.steps = 3}));
  const auto set = LoadRecordSet(folder, {});
  EXPECT_THAT(set.status().message(),
              HasSubstr("nothing in these records can be compared: "));
  EXPECT_THAT(set.status().message(), HasSubstr("3 steps leave 0"));
}

CollectiveRecord Row(int64_t rank, int64_t bytes,
                     const std::vector<double>& seconds) {
  CollectiveRecord row;
  row.rank = rank;
  row.collective = "all_reduce";
  row.bytes = bytes;
  row.dtype = "float32";
  row.op = "sum";
  row.seconds = seconds;
  row.start_seconds = std::vector<double>(seconds.size(), 0);
  return row;
}

// Returns a launch of two ranks, one twice as slow, with one size.
RunTrace Launch(const std::vector<double>& seconds, int64_t bytes = 8) {
  RunTrace run{"bench.jsonl", {}};
  for (int64_t rank : {0, 1}) {
    RankTrace trace;
    trace.run.binary = "comm_bench";
    trace.run.rank = rank;
    trace.run.world_size = 2;
    trace.run.backend = "gloo";
    trace.run.devices = {"cpu"};
    std::vector<double> own = seconds;
    for (double& x : own) x *= static_cast<double>(rank + 1);
    trace.collectives.push_back(Row(rank, bytes, own));
    run.ranks.push_back(trace);
  }
  return run;
}

std::vector<Configuration> MeasureCalls(const std::vector<RunTrace>& runs,
                                        CallUnit unit = CallUnit::kLaunch) {
  std::vector<std::string> left_out;
  std::vector<Configuration> result = CallConfigurations(runs, unit, &left_out);
  EXPECT_TRUE(left_out.empty()) << left_out[0];
  return result;
}

TEST(CallConfigurations, ALaunchIsARepetitionOfTheSlowestRanksMedian) {
  const auto found = MeasureCalls({Launch({1, 2, 3}), Launch({5, 6, 9})});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "all_reduce of 8 B float32 sum on 2 ranks, gloo");
  EXPECT_EQ(found[0].unit, "launch");
  EXPECT_THAT(found[0].samples.at("call_seconds"), ElementsAre(4, 12));
}

TEST(CallConfigurations, IterationsWhereAskedFor) {
  const auto found =
      MeasureCalls({Launch({1, 2}), Launch({3})}, CallUnit::kIteration);
  EXPECT_EQ(found[0].unit, "iteration");
  EXPECT_THAT(found[0].samples.at("call_seconds"), ElementsAre(2, 4, 6));
}

TEST(CallConfigurations, LateIterationsDoNotCountAndTripsDivide) {
  RunTrace launch = Launch({1, 50, 3});
  for (RankTrace& trace : launch.ranks) {
    trace.collectives[0].late = {1};
    trace.collectives[0].calls_per_iteration = 2;
  }
  EXPECT_THAT(MeasureCalls({launch})[0].samples.at("call_seconds"),
              ElementsAre(2));
}

TEST(CallConfigurations, RowsAreToldApartAndOrderedBySize) {
  RunTrace launch = Launch({1}, 4096);
  for (int64_t rank : {0, 1}) {
    std::vector<CollectiveRecord>& rows = launch.ranks[rank].collectives;
    rows.push_back(Row(rank, 16, {1}));
    rows.push_back(Row(rank, 16, {1}));
    rows.back().in_flight = 4;
    rows.push_back(Row(rank, 16, {7}));  // measured twice
  }
  const auto found = MeasureCalls({launch});
  ASSERT_EQ(found.size(), 4u);
  for (int i : {0, 1, 2}) EXPECT_EQ(found[i].identity.at("bytes"), "16");
  EXPECT_EQ(found[3].identity.at("bytes"), "4096");
  EXPECT_NE(found[0].identity, found[1].identity);
  EXPECT_NE(found[1].identity, found[2].identity);
}

TEST(CallConfigurations, WaysOfCallingAndTimingAreNotMixed) {
  std::vector<RunTrace> launches(7, Launch({1}));
  const auto change = [&launches](size_t i, auto set) {
    for (RankTrace& trace : launches[i].ranks) set(trace.collectives[0]);
  };
  change(1, [](CollectiveRecord& row) { row.layer = "nccl"; });
  change(2, [](CollectiveRecord& row) { row.timing = "events"; });
  change(3, [](CollectiveRecord& row) { row.graph = true; });
  change(4, [](CollectiveRecord& row) { row.registered = true; });
  // NCCL reports its choice on rank 0 only.
  launches[5].ranks[0].collectives[0].algorithm = "RING";
  launches[5].ranks[0].collectives[0].protocol = "LL";
  launches[6].ranks[0].collectives[0].algorithm = "TREE";
  launches[6].ranks[0].collectives[0].protocol = "LL";
  const auto found = MeasureCalls(launches);
  std::vector<std::string> names;
  for (const Configuration& one : found) names.push_back(one.name);
  const std::string name = "all_reduce of 8 B float32 sum on 2 ranks, gloo";
  EXPECT_THAT(names, testing::UnorderedElementsAre(
                         name, name + ", nccl", name + ", by events",
                         name + ", captured", name + ", registered",
                         name + ", RING, LL", name + ", TREE, LL"));
}

TEST(CallConfigurations, AGroupsRowHasTheGroupsRanksAndFactor) {
  RunTrace launch = Launch({1});
  for (RankTrace& trace : launch.ranks) {
    trace.run.world_size = 8;
    trace.collectives[0].ranks = {0, 1};
    trace.collectives[0].group_size = 2;
    trace.collectives[0].bus_factor = 1;
  }
  RunTrace older = launch;  // before schema 1.5
  for (RankTrace& trace : older.ranks) {
    trace.collectives[0].group_size = 0;
    trace.collectives[0].bus_factor = std::nan("");
  }
  const auto found = MeasureCalls({older, launch});
  ASSERT_EQ(found.size(), 1u) << "they are launches of one row";
  EXPECT_EQ(found[0].name,
            "all_reduce of 8 B float32 sum on 2 of 8 ranks {0,1}, gloo");
  EXPECT_EQ(found[0].identity.at("ranks"), "2");
  EXPECT_EQ(found[0].ranks, 2);
  EXPECT_EQ(found[0].bytes, 8);
  EXPECT_EQ(found[0].identity.at("world size"), "8");
  EXPECT_EQ(found[0].bus_factor, 1);
}

TEST(CallConfigurations, SettingsOfTheFakeBackendArePartOfIt) {
  RunTrace slow = Launch({1}), fast = Launch({1});
  slow.ranks[0].run.flags = {{"fake_alpha_us", "500"}, {"max_bytes", "64"}};
  fast.ranks[0].run.flags = {{"fake_alpha_us", "5"}, {"max_bytes", "128"}};
  const auto found = MeasureCalls({slow, fast});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].flags.size(), 1u);
}

// Places one rank on each host.
void SpreadOverHosts(RunTrace& run) {
  for (RankTrace& trace : run.ranks) {
    trace.run.hosts = trace.run.world_size;
    trace.run.host_index = trace.run.rank;
  }
}

TEST(CallConfigurations, LaunchesOnMoreHostsAreNoRepetitions) {
  RunTrace spread = Launch({1});
  SpreadOverHosts(spread);
  const auto found = MeasureCalls({Launch({1}), spread});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "all_reduce of 8 B float32 sum on 2 ranks, gloo");
  EXPECT_EQ(found[1].name,
            "all_reduce of 8 B float32 sum on 2 ranks of 2 hosts, gloo");
}

TEST(CallConfigurations, LaunchesOnAnotherCpuAreNoRepetitions) {
  RunTrace moved = Launch({1});
  for (RankTrace& trace : moved.ranks) trace.run.host.cpu_model = "B CPU";
  const auto found = MeasureCalls({Launch({1}), moved});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].cpus, "B CPU");
}

TEST(CallConfigurations, KnowsTheCodeOfItsLaunches) {
  RunTrace later = Launch({1});
  later.ranks[0].run.source_hash = "c0ffee";
  const auto found = MeasureCalls({Launch({1}), later, Launch({1})});
  EXPECT_THAT(found.at(0).code_versions,
              ElementsAre(HasSubstr("unknown"), HasSubstr("c0ffee")));
}

TEST(CallConfigurations, RanksThatDisagreeAreLeftOut) {
  RunTrace launch = Launch({1, 2});
  launch.ranks[1].collectives[0].seconds = {1};
  std::vector<std::string> left_out;
  EXPECT_TRUE(
      CallConfigurations({launch}, CallUnit::kLaunch, &left_out).empty());
  EXPECT_THAT(left_out, ElementsAre(HasSubstr(
                            "bench.jsonl: all_reduce of 8 B float32 sum on 2 "
                            "ranks, gloo: ranks 0 and 1 disagree about its "
                            "iterations")));
}

TEST(CallConfigurations, ARowWithoutOneOfItsRanksIsLeftOut) {
  RunTrace launch = Launch({1, 2});  // rank 1 is the slow one
  launch.ranks[1].collectives.clear();
  std::vector<std::string> left_out;
  const auto found = CallConfigurations({launch, Launch({1, 2})},
                                        CallUnit::kLaunch, &left_out);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].samples.at("call_seconds"), ElementsAre(3));
  EXPECT_THAT(left_out,
              ElementsAre(HasSubstr("gloo: has the records of 1 of 2 ranks")));
}

std::vector<Configuration> MeasureTrainers(const std::vector<RunTrace>& runs) {
  std::vector<std::string> left_out;
  return TrainerConfigurations(runs, {10}, &left_out);
}

std::vector<double> ValuesOf(const Configuration& configuration,
                             const std::string& metric) {
  const auto found = configuration.samples.find(metric);
  if (found == configuration.samples.end()) return {};
  return found->second;
}

TEST(TrainerConfigurations, ARunIsARepetition) {
  std::vector<RunTrace> runs = {
      MakeRun({.world_size = 2, .step_seconds = 0.1}),
      MakeRun({.world_size = 2, .step_seconds = 0.2})};
  runs[1].ranks[0].memory = MemoryRecord{0, 5000, 0};
  runs[1].ranks[1].memory = MemoryRecord{1, 6000, 0};
  const std::vector<Configuration> found = MeasureTrainers(runs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "ddp on 2 ranks, batch 64");
  EXPECT_EQ(found[0].unit, "run");
  EXPECT_THAT(ValuesOf(found[0], "step_seconds"), ElementsAre(0.1, 0.2));
  EXPECT_EQ(ValuesOf(found[0], "examples_per_second").size(), 2u);
  const auto exposed = ValuesOf(found[0], "comm_wait_seconds");
  ASSERT_EQ(exposed.size(), 2u);
  EXPECT_NEAR(exposed[0], 0.01, 1e-12);
  EXPECT_NEAR(exposed[1], 0.02, 1e-12);
  EXPECT_NEAR(ValuesOf(found[0], "data_wait_seconds")[1], 0.01, 1e-12);
  EXPECT_THAT(ValuesOf(found[0], "peak_bytes"), ElementsAre(6000));
}

TEST(TrainerConfigurations, PartsAreMeansOverStepsAndRanksAfterWarmUp) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) {
      step.exposed_comm_seconds = step.step <= 10 ? 99 : 0.001 * trace.run.rank;
    }
  }
  EXPECT_NEAR(ValuesOf(MeasureTrainers({run})[0], "comm_wait_seconds")[0],
              0.0005, 1e-12);
}

TEST(TrainerConfigurations, CapturedStepsOfSeveralRanksHaveNoExposedTime) {
  RunTrace run = MakeRun({.world_size = 2});
  for (RankTrace& trace : run.ranks) {
    for (StepRecord& step : trace.steps) step.captured_seconds = 0.08;
  }
  const std::vector<Configuration> found = MeasureTrainers({run});
  EXPECT_EQ(ValuesOf(found[0], "comm_wait_seconds").size(), 0u);
  EXPECT_EQ(ValuesOf(found[0], "step_seconds").size(), 1u);
}

TEST(TrainerConfigurations, FlagsOfOutputAndOfTheLauncherDoNotCount) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].run.flags["record"] = "a.jsonl";
  const std::vector<Configuration> found = MeasureTrainers({run});
  EXPECT_THAT(found[0].flags, Not(Contains(Key("record"))));
  EXPECT_THAT(found[0].flags, Not(Contains(Key("nproc"))));
  EXPECT_THAT(found[0].flags, Contains(Pair("lr", "0.1")));
  EXPECT_THAT(found[0].flags, Contains(Pair("batch_size", "64")));
  EXPECT_THAT(found[0].identity, Contains(Pair("ranks", "2")));
}

TEST(TrainerConfigurations, RanksOfMoreHostsAreAnother) {
  RunTrace spread = MakeRun({.world_size = 2});
  SpreadOverHosts(spread);
  const std::vector<Configuration> one =
      MeasureTrainers({MakeRun({.world_size = 2})});
  const std::vector<Configuration> two = MeasureTrainers({spread});
  EXPECT_EQ(two[0].name, "ddp on 2 ranks of 2 hosts, batch 64");
  EXPECT_NE(one[0].identity, two[0].identity);
}

TEST(TrainerConfigurations, NamesTellFlagsApart) {
  std::vector<RunTrace> runs = {MakeRun({}), MakeRun({})};
  RunRecord& run = runs[1].ranks[0].run;
  run.flags["lr"] = "0.2";
  SetConfigHashes(&run);
  const std::vector<Configuration> found = MeasureTrainers(runs);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].name, found[1].name);
  EXPECT_THAT(found[0].name, HasSubstr("ddp on 1 rank, batch 64, --lr=0."));
}

}  // namespace
}  // namespace rankwise

// Tests the communication benchmark through its command line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "analysis/compare/record_set.h"
#include "analysis/runs/run_trace.h"
#include "parallel/comm/test_process.h"
#include "records/record.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// Short rows: correctness and format are tested, not times.
const Flags kQuick = {"--threads=1", "--iterations=3"};

Flags Quick(const Flags& flags) { return Joined(flags, kQuick); }

int LinesIn(const std::string& path) {
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line);) ++lines;
  return lines;
}

TEST(CommBenchTest, MeasuresEveryCollectiveAndRecordsEverySample) {
  const std::string records = TemporaryPath("all.jsonl");
  const std::string csv = TemporaryPath("all.csv");
  const Finished run = RunCommBench(
      Quick({"--nproc=2", "--collectives=all", "--sizes=8,4K", "--place=both",
             absl::StrCat("--record=", records), absl::StrCat("--csv=", csv)}));
  ASSERT_EQ(run.code, 0) << run.err;
  std::map<std::string, int> rows;
  for (const CollectiveRecord& row : RecordsOf<CollectiveRecord>(records)) {
    ++rows[row.collective];
    EXPECT_THAT(row.seconds, SizeIs(3)) << row.collective;
    EXPECT_THAT(row.start_seconds, SizeIs(3)) << row.collective;
    EXPECT_EQ(row.wrong, 0) << row.collective;
  }
  EXPECT_THAT(rows, SizeIs(13));
  EXPECT_EQ(rows["all_reduce"], 2 * 2 * 2) << "ranks, sizes, places";
  EXPECT_EQ(rows["barrier"], 2);
  int total = 0;
  for (const auto& [name, count] : rows) {
    total += count;
    EXPECT_THAT(run.out, HasSubstr(name));
  }
  EXPECT_EQ(LinesIn(csv), 1 + total / 2);
}

// Returns the rows of a CSV file, by column; `group` is a row's quoted list of
// ranks.
std::vector<std::map<std::string, std::string>> CsvRows(
    const std::string& path, const std::string& group) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> names = absl::StrSplit(line, ',');
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(file, line)) {
    line = absl::StrReplaceAll(line, {{group, "group"}});
    const std::vector<std::string> fields = absl::StrSplit(line, ',');
    EXPECT_EQ(fields.size(), names.size()) << line;
    std::map<std::string, std::string>& row = rows.emplace_back();
    for (size_t i = 0; i < fields.size(); ++i) row[names[i]] = fields[i];
  }
  return rows;
}

// From the benchmark through its records to the report.
TEST(CommBenchTest, TheReportsBusBandwidthIsThatOfTheTable) {
  const std::string records = TemporaryPath("busbw.jsonl");
  const std::string csv = TemporaryPath("busbw.csv");
  const Finished run = RunCommBench(Quick(
      {"--nproc=4", "--group_size=2", "--sizes=4K",
       "--collectives=all_reduce,all_to_all,all_to_all_v,all_gather,broadcast",
       absl::StrCat("--record=", records), absl::StrCat("--csv=", csv)}));
  ASSERT_EQ(run.code, 0) << run.err;
  const auto runs = LoadRuns(records);
  ASSERT_TRUE(runs.ok()) << runs.status();
  std::vector<std::string> left_out;
  const std::vector<Configuration> calls =
      CallConfigurations(*runs, CallUnit::kLaunch, &left_out);
  EXPECT_THAT(left_out, IsEmpty());
  std::map<std::string, Configuration> of_first_group;
  for (const Configuration& call : calls) {
    if (call.identity.at("group") == "0,1")
      of_first_group[call.identity.at("collective")] = call;
  }
  const auto rows = CsvRows(csv, "\"0,1\"");
  ASSERT_THAT(rows, SizeIs(5));
  for (const auto& row : rows) {
    const Configuration& call = of_first_group[row.at("collective")];
    EXPECT_EQ(call.ranks, 2) << row.at("collective");
    const double factor = std::stod(row.at("busbw_gb_per_second")) /
                          std::stod(row.at("algbw_gb_per_second"));
    EXPECT_NEAR(call.bus_factor, factor, 1e-9) << row.at("collective");
  }
  EXPECT_EQ(of_first_group["all_reduce"].bus_factor, 1);
  EXPECT_EQ(of_first_group["all_to_all_v"].bus_factor, 0.5);
}

TEST(CommBenchTest, LinesOfAnAxisAloneAndAllAtOnce) {
  const std::string records = TemporaryPath("lines.jsonl");
  const std::string csv = TemporaryPath("lines.csv");
  const Finished run = RunCommBench(Quick(
      {"--nproc=4", "--mesh=dp:2,tp:2", "--axis=tp", "--sizes=64,4K",
       "--collectives=all_reduce,reduce_scatter,broadcast,ping_pong,barrier",
       absl::StrCat("--record=", records), absl::StrCat("--csv=", csv)}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("# 2 groups of 2 ranks along tp: the first "
                                 "alone while the others wait, then all at the "
                                 "same time; "));
  std::map<std::vector<int64_t>, int> rows;  // groups at once, rank
  for (const CollectiveRecord& row : RecordsOf<CollectiveRecord>(records)) {
    ++rows[{row.concurrent_groups, row.rank}];
    const int64_t first = row.rank / 2 * 2;
    EXPECT_THAT(row.ranks, ElementsAre(first, first + 1));
    EXPECT_EQ(row.wrong, 0) << row.collective;
    EXPECT_THAT(row.seconds, SizeIs(3));
  }
  const int calls = 4 * 2 + 1;
  EXPECT_EQ(rows, (std::map<std::vector<int64_t>, int>{{{1, 0}, calls},
                                                       {{1, 1}, calls},
                                                       {{2, 0}, calls},
                                                       {{2, 1}, calls},
                                                       {{2, 2}, calls},
                                                       {{2, 3}, calls}}));
  const auto shown = CsvRows(csv, "\"0,1\"");
  ASSERT_THAT(shown, SizeIs(2 * calls));
  for (size_t i = 0; i < shown.size(); i += 2) {
    EXPECT_EQ(shown[i].at("concurrent_groups"), "1");
    EXPECT_EQ(shown[i].at("contention"), "");
    EXPECT_EQ(shown[i + 1].at("concurrent_groups"), "2");
    EXPECT_NEAR(std::stod(shown[i + 1].at("contention")),
                std::stod(shown[i + 1].at("median_seconds")) /
                    std::stod(shown[i].at("median_seconds")),
                1e-9);
  }
  const auto runs = LoadRuns(records);
  ASSERT_TRUE(runs.ok()) << runs.status();
  std::vector<std::string> left_out;
  EXPECT_THAT(CallConfigurations(*runs, CallUnit::kLaunch, &left_out),
              SizeIs(3 * calls))
      << "the first line alone, and each of all";
  EXPECT_THAT(left_out, IsEmpty());
}

// One rank is late by three times the cost of a call; lines share nothing.
TEST(CommBenchTest, AllLinesAtOnceAreAsSlowAsTheSlowest) {
  for (const auto& [axis, straggler, alone, contention] :
       {std::tuple("tp", 3, "50.00", "4.00"), {"dp", 2, "200.00", "1.00"}}) {
    const Finished run =
        RunCommBench({"--threads=1", "--iterations=20", "--backend=fake",
                      "--fake_world_size=4", "--mesh=dp:2,tp:2",
                      absl::StrCat("--axis=", axis), "--sizes=64,4K,64K",
                      "--fake_alpha_us=50",
                      absl::StrCat("--fake_straggler_rank=", straggler),
                      "--fake_straggler_us=150", "--fake_virtual_time"});
    ASSERT_EQ(run.code, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr(absl::StrCat(" of 2 groups, ", contention,
                                                " x alone (", contention,
                                                " to ", contention, ")\n")));
    EXPECT_THAT(run.out,
                HasSubstr(absl::StrCat("\n# alone: alpha ", alone, " us, ")));
    EXPECT_THAT(run.out, HasSubstr("\n# all: alpha 200.00 us, "));
  }
}

TEST(CommBenchTest, OneLineOnly) {
  const std::string records = TemporaryPath("one_line.jsonl");
  const Finished run = RunCommBench(
      Quick({"--nproc=4", "--mesh=dp:2,tp:2", "--axis=dp", "--lines=one",
             "--sizes=64", absl::StrCat("--record=", records)}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::vector<CollectiveRecord> rows =
      RecordsOf<CollectiveRecord>(records);
  ASSERT_THAT(rows, SizeIs(2));
  for (const CollectiveRecord& row : rows)
    EXPECT_THAT(row.ranks, ElementsAre(0, 2));
}

TEST(CommBenchTest, RecordsWhereItRan) {
  const std::string records = TemporaryPath("where.jsonl");
  const Finished run =
      RunCommBench(Quick({"--sizes=8", absl::StrCat("--record=", records)}),
                   {"GLOO_SOCKET_IFNAME=lo", "NOT_OURS=1"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto places = RecordsOf<EnvironmentRecord>(records);
  ASSERT_THAT(places, SizeIs(1));
  EXPECT_THAT(places[0].topology, HasSubstr("package"));
  EXPECT_FALSE(places[0].cpus.empty());
  EXPECT_EQ(places[0].variables.at("GLOO_SOCKET_IFNAME"), "lo");
  EXPECT_FALSE(places[0].variables.contains("NOT_OURS"));
}

TEST(CommBenchTest, WarnsOfMoreThreadsThanTheCoresThatItMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Finished two = RunCommBench(Quick({"--nproc=2", "--sizes=8"}));
  const Finished single = RunCommBench(Quick({"--nproc=1", "--sizes=8"}));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_THAT(two.out, HasSubstr(" 2 threads on 1 usable core of this host"));
  EXPECT_THAT(single.out, Not(HasSubstr("warning")));
  EXPECT_EQ(two.code + single.code, 0) << two.err << single.err;
}

TEST(CommBenchTest, InVirtualTimeEverySampleIsWhatACallCosts) {
  const std::string records = TemporaryPath("virtual.jsonl");
  const Finished run = RunCommBench(
      Quick({"--backend=fake", "--fake_world_size=4", "--fake_alpha_us=50",
             "--fake_beta_ns_per_byte=2", "--fake_virtual_time",
             "--sizes=8,64K,1M", absl::StrCat("--record=", records)}));
  ASSERT_EQ(run.code, 0) << run.err;
  const std::vector<CollectiveRecord> rows =
      RecordsOf<CollectiveRecord>(records);
  EXPECT_THAT(rows, SizeIs(4 * 3)) << "ranks, sizes";
  for (const CollectiveRecord& row : rows) {
    EXPECT_THAT(row.seconds, SizeIs(3));
    const double bytes = static_cast<double>(row.bytes);
    for (const double seconds : row.seconds)
      EXPECT_NEAR(seconds, 50e-6 + 2e-9 * bytes, 1e-12) << row.bytes;
  }
}

TEST(CommBenchTest, ThousandsOfFakeRanksNeedLittleMemory) {
  const Finished run = RunCommBench(Quick(
      {"--backend=fake", "--fake_world_size=2000", "--warmup=1", "--sizes=4"}));
  ASSERT_EQ(run.code, 0) << run.err;
  rusage largest;
  ASSERT_EQ(getrusage(RUSAGE_CHILDREN, &largest), 0);
  EXPECT_LT(largest.ru_maxrss, 600 << 10) << "KiB, of any run of this test";
}

struct Variant {
  const char* name;
  std::vector<std::string> flags;
  const char* output;
};

class CommBenchVariantTest : public ::testing::TestWithParam<Variant> {};

TEST_P(CommBenchVariantTest, Runs) {
  const Finished run = RunCommBench(Quick(GetParam().flags));
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex(GetParam().output));
  EXPECT_THAT(run.err, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, CommBenchVariantTest,
    ::testing::ValuesIn(std::vector<Variant>{
        {"Window", {"--nproc=2", "--sizes=4K", "--sync=window"}, "4096"},
        {"NoSync", {"--nproc=2", "--sizes=4K", "--sync=none"}, "4096"},
        {"Cold", {"--nproc=2", "--sizes=4K", "--cache=cold"}, "4096"},
        {"InFlight", {"--nproc=2", "--sizes=4K", "--in_flight=4"}, "4096"},
        {"Unchecked", {"--nproc=2", "--sizes=4K", "--check=false"}, "4096"},
        {"Transfer",
         {"--nproc=2", "--sizes=4K", "--across=transfer",
          "--arrival_us=0,2000"},
         "4096"},
        {"Types",
         {"--nproc=2", "--sizes=64", "--dtypes=all", "--ops=all"},
         "left out: all_reduce of int32 with op avg"},
        {"SubGroups",
         {"--nproc=4", "--sizes=4K", "--group_size=2"},
         "2 groups of 2 ranks"},
        {"SkewedTraffic",
         {"--nproc=3", "--collectives=all_to_all_v", "--sizes=4K",
          "--traffic_skew=1"},
         "all_to_all_v"},
        {"List", {"--list"}, "all_reduce +every rank"},
        {"OddSizes",
         {"--nproc=2", "--sizes=7,8,9"},
         "9 bytes: as the row above"},
        {"SizesBelowAnElement",
         {"--nproc=2", "--sizes=3"},
         "# 3 bytes: measured as 4, rounded"},
        {"SizesRoundedDown",
         {"--nproc=2", "--sizes=9"},
         "# 9 bytes: measured as 8, rounded"},
        {"FakeSweep",
         {"--backend=fake", "--fake_world_size=4", "--fake_alpha_us=1000",
          "--sizes=8,4K,64K"},
         "# alpha [0-9.]+ us, beta [-0-9.e+]+ ns/B.*, median error [0-9.]+ %"},
    }),
    [](const auto& info) { return info.param.name; });

TEST(CommBenchTest, RelaunchesAndComparesLaunches) {
  const std::string records = TemporaryPath("launches.jsonl");
  const Finished run =
      RunCommBench(Quick({"--nproc=2", "--relaunch=2", "--sizes=4K",
                          absl::StrCat("--record=", records)}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex("all_reduce +4096 +float32 +sum +in . +2 "
                                     "+[0-9.]+ +[0-9.]+ "))
      << "2 launches, with the interval over them";
  std::set<int64_t> launches;
  for (const CollectiveRecord& row : RecordsOf<CollectiveRecord>(records))
    launches.insert(row.launch);
  EXPECT_THAT(launches, ElementsAre(0, 1));
}

// Enough iterations that only a signal ends them.
std::vector<std::string> Endless(const std::string& records) {
  return {"--nproc=2",    "--threads=1",
          "--warmup=0",   "--collectives=all_reduce,broadcast",
          "--sizes=8,16", "--iterations=20",
          "--dtypes=all", "--ops=all",
          "--cache=cold", absl::StrCat("--record=", records)};
}

TEST(CommBenchTest, CtrlCKeepsWhatWasMeasured) {
  const std::string records = TemporaryPath("interrupted.jsonl");
  const auto run = StartCommBench(Endless(records));
  ASSERT_TRUE(run->AwaitOutput("float32", 2)) << run->Stderr();
  run->Signal(SIGINT);
  EXPECT_EQ(run->Wait(), 130);
  EXPECT_THAT(RecordsOf<CollectiveRecord>(records), SizeIs(::testing::Ge(4)));
  EXPECT_THAT(run->Stderr(), HasSubstr("interrupted"));
}

TEST(CommBenchTest, AKilledPeerIsNamedAndEarlierRowsAreKept) {
  const std::string records = TemporaryPath("killed.jsonl");
  const auto run = StartCommBench(Endless(records));
  ASSERT_TRUE(run->AwaitOutput("float32", 2)) << run->Stderr();
  const std::vector<pid_t> ranks = ChildrenOf(run->pid());
  ASSERT_THAT(ranks, SizeIs(2));
  ASSERT_EQ(kill(ranks[1], SIGKILL), 0);
  EXPECT_EQ(run->Wait(absl::Seconds(20)), 137);
  EXPECT_TRUE(AllGone(ranks));
  EXPECT_THAT(run->Stderr(), ContainsRegex("rank 1.*signal 9"));
  EXPECT_THAT(RecordsOf<CollectiveRecord>(records), SizeIs(::testing::Ge(3)));
}

TEST(CommBenchTest, AFileThatOneRankCannotOpenEndsAll) {
  const Finished run =
      RunCommBench(Quick({"--nproc=2", "--sizes=8", "--csv=/proc/rows.csv"}));
  EXPECT_EQ(run.code, 1);
  EXPECT_THAT(run.err, HasSubstr("opening the CSV file"));
}

TEST(CommBenchTest, RanksThatDisagreeAreNamed) {
  const std::string store = TemporaryPath("store");
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (const char* size : {"4K", "8K"}) {
    const size_t rank = ranks.size();
    ranks.push_back(StartCommBench(
        Quick({absl::StrCat("--sizes=", size),
               absl::StrCat("--file_store=", store)}),
        {absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
         "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"}));
  }
  EXPECT_EQ(ranks[0]->Wait(), 2);
  EXPECT_EQ(ranks[1]->Wait(), 2);
  EXPECT_THAT(ranks[0]->Stderr(),
              HasSubstr("ranks disagree: rank 1 has --sizes=8K but rank 0 has "
                        "--sizes=4K"));
}

// These flags determine how ranks connect, so they are compared before.
TEST(CommBenchTest, RanksThatDisagreeAboutConnectionsAreNamed) {
  const std::string store = TemporaryPath("store");
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (const char* check : {"true", "false"}) {
    const size_t rank = ranks.size();
    ranks.push_back(StartCommBench(
        Quick({absl::StrCat("--check_collectives=", check),
               absl::StrCat("--file_store=", store)}),
        {absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
         "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2"}));
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->Wait(), 2);
    EXPECT_THAT(rank->Stderr(),
                AllOf(HasSubstr("rank 1"), HasSubstr("check_collectives")));
  }
}

// Two ranks on each of two hosts, emulated by agents on this machine.
TEST(CommBenchTest, HierarchicalAllReducesAreRowsOfTheirOwn) {
  const std::string path = TemporaryPath("levels.jsonl");
  std::vector<std::unique_ptr<TestProcess>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(StartCommBench(
        Quick({"--layer=hierarchical", "--sizes=4K,1M", "--backend=gloo",
               "--record=" + path, "--file_store=" + path + ".store"}),
        {absl::StrCat("RANK=", rank), "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2",
         absl::StrCat("LOCAL_RANK=", rank % 2), "GLOO_SOCKET_IFNAME=lo"}));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->Wait(), 0) << rank->Stderr();
  EXPECT_THAT(ranks[0]->Stdout(), HasSubstr("layer hierarchical"));
  const std::vector<CollectiveRecord> rows = RecordsOf<CollectiveRecord>(path);
  EXPECT_THAT(rows, SizeIs(2 * 4));
  for (const CollectiveRecord& row : rows) {
    EXPECT_EQ(row.layer, "hierarchical");
    EXPECT_EQ(row.wrong, 0);
  }
}

TEST(CommBenchTest, ATrafficMatrixThatDoesNotBalanceIsRefused) {
  const std::string path = TemporaryPath("traffic.txt");
  std::ofstream(path) << "1, 1\n3, 1\n";
  const Finished run =
      RunCommBench(Quick({"--nproc=2", "--collectives=all_to_all_v",
                          absl::StrCat("--traffic=", path)}));
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr(path));
  EXPECT_THAT(run.err, HasSubstr(":2: the matrix does not balance"));
}

}  // namespace
}  // namespace rankwise

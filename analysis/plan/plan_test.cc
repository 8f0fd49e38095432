// Tests the binary through its command line.

#include <sys/resource.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "analysis/cost_model/runs_for_test.h"
#include "analysis/plan/model.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/shell_for_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "records/record_writer.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Finished {
  int code = 0;
  std::string text;  // of stdout and stderr
};

Finished RunPlan(const std::string& flags) {
  const Outcome outcome =
      RunShell(absl::StrCat("analysis/plan/plan ", flags, " 2>&1"));
  return {outcome.exit_code, outcome.output};
}

std::string ContentOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Plan, RanksLayoutsAndDrawsTheirScaling) {
  const std::string json = testing::TempDir() + "/plan.json";
  const Finished plan =
      RunPlan(absl::StrCat("--model=gpt3-175b --cluster=a100-selene "
                           "--world_sizes=64,512 --best=3 --json=",
                           json));
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.text,
              AllOf(HasSubstr("175 billion parameters"),
                    HasSubstr("\n64 ranks, 64 examples a step: "),
                    HasSubstr("\n512 ranks, 512 examples a step: "),
                    HasSubstr("is the fastest"), HasSubstr("\nIts MFU: "),
                    HasSubstr("Tokens per second and rank of the best layout"),
                    HasSubstr("//trainers:hybrid -- --nproc=512 ")));
  const auto written = nlohmann::json::parse(ContentOf(json));
  ASSERT_EQ(written["world_sizes"].size(), 2u);
  for (const auto& size : written["world_sizes"]) {
    ASSERT_EQ(size["best"].size(), 3u);
    for (const auto& layout : size["best"]) {
      EXPECT_EQ(layout["pp"].get<int>() * layout["dp"].get<int>() *
                    layout["cp"].get<int>() * layout["tp"].get<int>(),
                size["ranks"].get<int>());
      EXPECT_LT(layout["step_interval"][0], layout["step_seconds"]);
      EXPECT_LT(layout["mfu_interval"][0], layout["mfu"]);
      EXPECT_GT(layout["mfu_interval"][1], layout["mfu"]);
      for (const auto& [part, interval] : layout["intervals"].items()) {
        EXPECT_LE(interval[0], layout["seconds"][part]) << part;
        EXPECT_GE(interval[1], layout["seconds"][part]) << part;
      }
      EXPECT_EQ(layout["intervals"].size(), 4u);
      double bytes = 0;
      for (const auto& part : layout["memory"]) bytes += part.get<double>();
      EXPECT_LE(bytes, 80e9);
    }
  }
}

// Returns the CPU time of terminated children, which excludes other load.
double ChildrensCpuSeconds() {
  rusage used;
  ::getrusage(RUSAGE_CHILDREN, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 *
             static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// 10,000 ranks, sizes that are not powers of two, and steps of up to 4,194,304
// micro-batches, or 68,719,476,736 examples. 0.1 s, 1 s, 3 s and 0.1 s on an
// AMD EPYC; the limit allows for slow machines.
TEST(Plan, TakesManyRanksAndMicroBatches) {
  for (const auto& [flags, ranks] :
       {std::pair("--model=gpt3-175b --world_sizes=96,1000,10000 --best=1",
                  "10000 ranks, "),
        std::pair("--model=megatron-1t --world_sizes=10000 --batch_per_rank=2",
                  "10000 ranks, "),
        std::pair("--model=gpt3-175b --world_sizes=64 --batch_per_rank=65536",
                  "64 ranks, 4194304 examples"),
        std::pair("--model=nano --world_sizes=1048576 "
                  "--batch_per_rank=65536 --best=1",
                  "1048576 ranks, 68719476736 examples")}) {
    const double before = ChildrensCpuSeconds();
    const Finished plan =
        RunPlan(absl::StrCat("--cluster=h100-superpod ", flags));
    EXPECT_EQ(plan.code, 0) << plan.text;
    EXPECT_LT(ChildrensCpuSeconds() - before, 10) << flags;
    EXPECT_THAT(plan.text, HasSubstr(ranks));
  }
}

TEST(Plan, SaysWhereNothingFits) {
  const Finished none =
      RunPlan("--model=megatron-1t --cluster=a100-selene --world_sizes=8");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.text,
              HasSubstr("no layout of 8 ranks fits into 80.0 GB per rank"));
  const Finished some = RunPlan(
      "--model=megatron-1t --cluster=a100-selene "
      "--world_sizes=8,1024 --best=1");
  EXPECT_EQ(some.code, 0);
  EXPECT_THAT(some.text, AllOf(HasSubstr("no layout of 8 ranks fits"),
                               HasSubstr("1024 ranks, 1024 examples")));
}

TEST(Plan, PrintsPublishedTables) {
  const Finished plan = RunPlan("--validate=narayanan2021");
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.text, AllOf(HasSubstr("Narayanan et al. 2021, table 1"),
                               HasSubstr("mean error")));
}

// Writes records of nano in bf16 on `device`. Returns the file.
std::string WriteRecords(const std::string& device) {
  const std::string path =
      absl::StrCat(testing::TempDir(), "/on_", device, ".jsonl");
  std::remove(path.c_str());
  auto writer = *RecordWriter::Open(path);
  RunTrace single = MakeRun({.binary = "single", .batch_size = 8});
  RankTrace& rank = single.ranks[0];
  rank.run.devices = {device};
  rank.run.host.cores = 64;
  rank.run.flags["model"] = "gpt";
  rank.run.flags["precision"] = "bf16";
  rank.run.forward_flops_per_example = plan::NamedModel("nano")->ForwardFlops();
  EXPECT_TRUE(writer->Write(Record(rank.run)).ok());
  EXPECT_TRUE(writer->Write(rank.steps).ok());
  BenchRunForTest bench;
  bench.collectives = {"all_reduce", "ping_pong"};
  for (const RankTrace& one : MakeBenchRun(bench).ranks) {
    EXPECT_TRUE(writer->Write(Record(one.run)).ok());
    for (const CollectiveRecord& record : one.collectives)
      EXPECT_TRUE(writer->Write(Record(record)).ok());
  }
  EXPECT_TRUE(writer->Close().ok());
  return path;
}

// Plans ZeRO 3 on two ranks from such records.
double PlannedActivations(const std::string& device) {
  const std::string json = testing::TempDir() + "/recorded_plan.json";
  const Finished plan = RunPlan(absl::StrCat(
      "--model=nano --world_sizes=2 --batch_per_rank=8 --zero=3 --best=100 "
      "--precision=bf16 --memory=80GB --json=",
      json, " --records=", WriteRecords(device)));
  EXPECT_EQ(plan.code, 0) << plan.text;
  const auto written = nlohmann::json::parse(ContentOf(json));
  for (const auto& layout : written["world_sizes"][0]["best"]) {
    if (layout["dp"] == 2 && layout["zero"] == 3)
      return layout["memory"]["activation_bytes"].get<double>();
  }
  ADD_FAILURE() << "no ZeRO 3 in " << plan.text;
  return 0;
}

TEST(Plan, NormsOfACpuKeepNoFp32Copies) {
  EXPECT_LT(PlannedActivations("cpu"), PlannedActivations("cuda:0"));
}

TEST(Plan, RecordsOfGpusNeedTheMemoryOfOne) {
  const std::string flags =
      absl::StrCat("--model=nano --world_sizes=2 --precision=bf16 --records=",
                   WriteRecords("cuda:0"));
  const Finished unknown = RunPlan(flags);
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.text,
              HasSubstr("records do not contain the memory of a GPU: pass it, "
                        "such as --memory=80GB"));
  const Finished stated = RunPlan(flags + " --memory=80GB");
  EXPECT_EQ(stated.code, 0);
  EXPECT_THAT(stated.text, HasSubstr(" and 80 GB\n"));
}

TEST(Plan, SchedulesTooLongToSimulateAreLeftOut) {
  const Finished plan = RunPlan(
      "--layers=2048 --width=64 --heads=1 --sequence_length=1 --vocabulary=100 "
      "--cluster=h100-superpod --world_sizes=2048 --global_batch=65535");
  EXPECT_EQ(plan.code, 1);
  EXPECT_THAT(plan.text,
              AllOf(HasSubstr("no layout of 2048 ranks could be simulated"),
                    HasSubstr("at most 16777216")));
}

// tests/faults/bad_command_lines.txt has the flags that need no file.
TEST(Plan, RefusesABrokenClusterFile) {
  const std::string path = testing::TempDir() + "/cluster.json";
  std::ofstream(path) << R"({"format": "rankwise cluster", "version": 1,
      "name": "\u001b[2J", "devices_per_node": 4})";
  const Finished plan = RunPlan(absl::StrCat("--model=nano --cluster=", path));
  EXPECT_EQ(plan.code, 2);
  EXPECT_EQ(plan.text, absl::StrCat("plan: --cluster=", path,
                                    ": (/name) must not hold control "
                                    "characters\n"));
}

}  // namespace
}  // namespace rankwise

#include "analysis/runs/run_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "analysis/runs/trace_for_test.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string WriteRecords(const std::vector<Record>& records) {
  const std::string path = testing::TempDir() + "/runs.jsonl";
  std::ofstream file(path);
  for (const Record& record : records) file << ToJsonLine(record) << "\n";
  return path;
}

std::string Refusal(const std::string& path) {
  return std::string(LoadRuns(path).status().message());
}

RunRecord RunOf(const std::string& id, int64_t rank, int64_t world_size) {
  RunRecord run;
  run.run_id = id;
  run.rank = rank;
  run.world_size = world_size;
  return run;
}

StepRecord StepOf(int64_t rank, int64_t step) {
  StepRecord record;
  record.rank = rank;
  record.step = step;
  return record;
}

TEST(LoadRuns, InterleavedRanksAreSortedOut) {
  const auto runs = LoadRuns(
      WriteRecords({RunOf("a", 1, 2), RunOf("a", 0, 2), StepOf(1, 1),
                    StepOf(0, 1), EpochRecord(), StepOf(1, 2), StepOf(0, 2)}));
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 1u);
  ASSERT_EQ((*runs)[0].ranks.size(), 2u);
  EXPECT_EQ((*runs)[0].ranks[0].run.rank, 0);
  EXPECT_EQ((*runs)[0].ranks[1].steps.size(), 2u);
  EXPECT_TRUE(CheckRun((*runs)[0]).ok());
}

// Runs of trainers and of comm_bench, which has no steps.
TEST(LoadRuns, VirtualGpusMeasureNothing) {
  RunRecord run = RunOf("a", 0, 1);
  run.devices = {"cuda:0"};
  EXPECT_TRUE(LoadRuns(WriteRecords({run, StepOf(0, 1)})).ok());
  run.devices = {"cuda:0 (virtual)"};
  for (const std::vector<Record>& records :
       {std::vector<Record>{run, StepOf(0, 1)},
        std::vector<Record>{run, CollectiveRecord()}}) {
    EXPECT_THAT(Refusal(WriteRecords(records)),
                HasSubstr("runs.jsonl: recorded on virtual GPUs, which measure "
                          "nothing"));
  }
}

TEST(LoadRuns, RunsThatFollowEachOtherInAFileAreApart) {
  const auto runs =
      LoadRuns(WriteRecords({RunOf("a", 0, 1), StepOf(0, 1), StepOf(0, 2),
                             RunOf("b", 0, 1), StepOf(0, 1)}));
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ((*runs)[0].ranks[0].steps.size(), 2u);
  EXPECT_EQ((*runs)[1].ranks[0].steps.size(), 1u);
}

TEST(LoadRuns, ScheduleRecordsBelongToTheirRank) {
  ScheduleRecord schedule;
  schedule.rank = 1;
  schedule.step = 1;
  const auto runs = LoadRuns(WriteRecords(
      {RunOf("a", 0, 2), RunOf("a", 1, 2), StepOf(1, 1), schedule}));
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_TRUE((*runs)[0].ranks[0].schedules.empty());
  EXPECT_EQ((*runs)[0].ranks[1].schedules.size(), 1u);
}

TEST(LoadRuns, TornLinesArePassedOverAndNamed) {
  const std::string path = WriteRecords({RunOf("a", 0, 1), StepOf(0, 1)});
  std::ofstream(path, std::ios::app) << "{\"kind\n{\"kind\":\"ste";
  const auto runs = LoadRuns(path);
  ASSERT_TRUE(runs.ok()) << runs.status();
  EXPECT_EQ((*runs)[0].ranks[0].steps.size(), 1u);
  EXPECT_THAT(TornLines(*runs),
              ElementsAre(path + ":3: a torn line, as a killed run or a full "
                                 "disk leaves it",
                          path + ":4: a torn line, as a killed run or a full "
                                 "disk leaves it"));
}

TEST(LoadRuns, ContradictionsAreNamedByFileAndLine) {
  EXPECT_THAT(
      Refusal(WriteRecords({RunOf("a", 0, 1), RunOf("a", 0, 1)})),
      HasSubstr("runs.jsonl:2: rank 0 opens the run \"a\" a second time"));
  EXPECT_THAT(
      Refusal(WriteRecords({RunOf("a", 0, 2), RunOf("a", 1, 3)})),
      HasSubstr(
          ":2: rank 1 of the run \"a\" has world size 3, and rank 0 has 2"));
}

// Returns a new folder for one test.
std::string MakeFolder(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directory(path);
  return path;
}

void WriteRun(const std::string& path, const std::string& id) {
  std::ofstream(path) << ToJsonLine(RunOf(id, 0, 1)) << "\n"
                      << ToJsonLine(StepOf(0, 1)) << "\n";
}

TEST(RecordFilesIn, AreTheFileItselfOrTheFoldersInOrder) {
  const std::string dir = MakeFolder("record_files");
  for (const char* name : {"b.jsonl", "a.jsonl", "c.json", "d.log"}) {
    WriteRun(dir + "/" + name, "x");
  }
  EXPECT_THAT(*RecordFilesIn(dir),
              ElementsAre(dir + "/a.jsonl", dir + "/b.jsonl"));
  EXPECT_THAT(*RecordFilesIn(dir + "/c.json"), ElementsAre(dir + "/c.json"));
}

TEST(RecordFilesIn, SaysWhatIsMissing) {
  const std::string dir = MakeFolder("no_record_files");
  const absl::Status empty = RecordFilesIn(dir).status();
  EXPECT_TRUE(absl::IsNotFound(empty));
  EXPECT_THAT(std::string(empty.message()),
              HasSubstr("no_record_files: holds no *.jsonl"));
  const absl::Status missing = RecordFilesIn(dir + "/none").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("/none: no such file or folder"));
}

TEST(LoadRuns, KeepsTheOrderOfAFoldersFiles) {
  const std::string dir = MakeFolder("many_runs");
  std::vector<std::string> expected;
  for (int i = 10; i < 50; ++i) {
    expected.push_back("run" + std::to_string(i));
    WriteRun(dir + "/" + expected.back() + ".jsonl", expected.back());
  }
  const auto runs = LoadRuns(dir);
  ASSERT_TRUE(runs.ok()) << runs.status();
  std::vector<std::string> ids;
  for (const RunTrace& run : *runs) ids.push_back(run.ranks[0].run.run_id);
  EXPECT_EQ(ids, expected);
  EXPECT_EQ((*runs)[39].source, dir + "/run49.jsonl");
}

TEST(LoadRuns, TheFirstFileThatFailsIsNamed) {
  const std::string dir = MakeFolder("broken_runs");
  for (int i = 10; i < 30; ++i) {
    const std::string path = dir + "/" + std::to_string(i) + ".jsonl";
    if (i == 15 || i == 17) {
      std::ofstream(path) << "{}\n";
    } else {
      WriteRun(path, std::to_string(i));
    }
  }
  EXPECT_THAT(Refusal(dir), HasSubstr("/15.jsonl"));
}

// Returns the records that the host of ranks `first` and `first` + 1 writes for
// a run "x" of 4 ranks.
std::string RecordsOfHost(int64_t first) {
  std::string text;
  for (int64_t rank : {first, first + 1}) {
    text += ToJsonLine(RunOf("x", rank, 4)) + "\n" +
            ToJsonLine(StepOf(rank, 1)) + "\n";
  }
  return text;
}

TEST(LoadRuns, TheHostsOfARunMayHaveFilesOfTheirOwn) {
  const std::string dir = MakeFolder("files_of_hosts");
  std::ofstream(dir + "/a.jsonl") << RecordsOfHost(2);
  std::ofstream(dir + "/b.jsonl") << RecordsOfHost(0) << "{\"kind\n";
  const auto runs = LoadRuns(dir);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 1u);
  EXPECT_TRUE(CheckRun((*runs)[0]).ok()) << CheckRun((*runs)[0]);
  ASSERT_EQ((*runs)[0].ranks.size(), 4u);
  EXPECT_EQ((*runs)[0].ranks[0].run.rank, 0);
  EXPECT_THAT(TornLines(*runs),
              ElementsAre(HasSubstr("b.jsonl:5: a torn line")));
}

TEST(LoadRuns, ACopyOfAFileIsRefused) {
  const std::string dir = MakeFolder("copied_runs");
  WriteRun(dir + "/a.jsonl", "x");
  WriteRun(dir + "/b.jsonl", "y");
  WriteRun(dir + "/c.jsonl", "x");
  const absl::Status copied = LoadRuns(dir).status();
  EXPECT_TRUE(absl::IsInvalidArgument(copied));
  EXPECT_EQ(copied.message(),
            dir + "/a.jsonl and " + dir +
                "/c.jsonl hold the same run \"x\": remove one of the two");
}

TEST(LoadRuns, FilesOfARunMustAgreeAboutTheWorldSize) {
  const std::string dir = MakeFolder("other_world_size");
  std::ofstream(dir + "/a.jsonl") << RecordsOfHost(0);
  std::ofstream(dir + "/b.jsonl") << ToJsonLine(RunOf("x", 2, 3)) << "\n";
  EXPECT_THAT(Refusal(dir),
              HasSubstr("/b.jsonl disagree about the world size of the run"));
}

std::string WhyNot(const RunTrace& run) {
  return std::string(CheckRun(run).message());
}

TEST(CheckRun, MissingRanksAndStepsAreNamed) {
  RunTrace run = MakeRun({.world_size = 3, .run_id = "x"});
  EXPECT_TRUE(CheckRun(run).ok());
  run.ranks[1].steps.pop_back();
  EXPECT_THAT(WhyNot(run), HasSubstr("x.jsonl: rank 1 recorded 19 steps"));
  run.ranks.pop_back();
  EXPECT_THAT(WhyNot(run), HasSubstr("records of 2 of its 3 ranks"));
  run.ranks.clear();
  EXPECT_THAT(WhyNot(run), HasSubstr("no ranks"));
}

TEST(CheckRun, ADivergedTrainingIsNamed) {
  const double infinity = std::numeric_limits<double>::infinity();
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[1].steps[7].loss = -infinity;
  run.ranks[0].steps[9].loss = std::nan("");
  run.ranks[1].steps.pop_back();  // as after a failure
  EXPECT_THAT(WhyNot(run),
              HasSubstr(": the training diverged: the loss of rank 1 is -inf "
                        "in step 8"));
  run = MakeRun({.world_size = 2});
  run.ranks[0].evaluations = {{.epoch = 3, .mean_loss = infinity}};
  EXPECT_THAT(WhyNot(run),
              HasSubstr("diverged: the test loss of epoch 3 is inf"));
  run.ranks[0].evaluations[0].mean_loss = 1e30;
  EXPECT_TRUE(CheckRun(run).ok());
}

TEST(CheckRun, ADivergenceThatTheTrainerRecordedIsNamed) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].divergences = {{0, 9, "the parameters after step 9"}};
  run.ranks[1].divergences = {{1, 8, "the gradients' norm of step 8 is inf"}};
  run.ranks[1].steps.pop_back();
  EXPECT_THAT(WhyNot(run),
              HasSubstr("run.jsonl: the training diverged: the gradients' "
                        "norm of step 8 is inf"));
  for (RankTrace& rank : run.ranks) rank.run.backend = "fake";
  EXPECT_EQ(WhyDiverged(run), "");
}

TEST(CheckRun, TheTextOfANanHasNoSign) {
  RunTrace run = MakeRun({});
  run.ranks[0].evaluations = {{.epoch = 2, .mean_loss = -std::nan("")}};
  EXPECT_THAT(WhyNot(run), HasSubstr("the test loss of epoch 2 is nan"));
  run.ranks[0].steps[3].loss = std::copysign(std::nan(""), -1.0);
  EXPECT_THAT(WhyNot(run), HasSubstr("the loss of rank 0 is nan in step 4"));
}

TEST(CheckRun, Fp16DivergesAfter20StepsInARow) {
  RunTrace run = MakeRun({.world_size = 2, .steps = 50});
  for (RankTrace& rank : run.ranks) rank.run.flags["precision"] = "fp16";
  for (int step : {1, 2, 30}) run.ranks[0].steps[step].loss = std::nan("");
  for (int step = 10; step < 29; ++step)
    run.ranks[1].steps[step].loss = std::nan("");
  EXPECT_TRUE(CheckRun(run).ok()) << CheckRun(run);
  run.ranks[1].steps[29].loss = std::nan("");
  EXPECT_THAT(WhyNot(run), HasSubstr("the loss of rank 1 is nan in step 30"));
}

TEST(CheckRun, LossesWithoutCommunicationAreNotJudged) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[1].steps[7].loss = std::nan("");
  EXPECT_FALSE(CheckRun(run).ok());
  RunTrace fake = run;
  for (RankTrace& rank : fake.ranks) rank.run.backend = "fake";
  EXPECT_TRUE(CheckRun(fake).ok()) << CheckRun(fake);
  for (RankTrace& rank : run.ranks)
    rank.run.flags["skip_communication"] = "true";
  EXPECT_TRUE(CheckRun(run).ok()) << CheckRun(run);
  // A single rank trains in any case.
  RunTrace alone = MakeRun({});
  alone.ranks[0].run.flags["skip_communication"] = "true";
  alone.ranks[0].steps[7].loss = std::nan("");
  EXPECT_FALSE(CheckRun(alone).ok());
}

TEST(CheckRun, AParameterServerMayHaveAStepWithoutWorkers) {
  RunTrace run = MakeRun({.world_size = 2});
  run.ranks[0].updates.emplace_back();
  run.ranks[0].steps.back().loss = std::nan("");
  EXPECT_TRUE(CheckRun(run).ok()) << CheckRun(run);
}

TEST(CheckRun, AGapInTheStepsIsNamed) {
  RunTrace run = MakeRun({});
  run.ranks[0].steps.erase(run.ranks[0].steps.begin() + 5);
  EXPECT_THAT(WhyNot(run), HasSubstr("rank 0 recorded step 7 after step 5"));
}

RunForTest Pipeline(int64_t world_size, int64_t replicas) {
  return {.binary = "pipeline",
          .world_size = world_size,
          .schedule = "1f1b",
          .replicas = replicas};
}

TEST(RanksSharingExamples, AreThoseOfOnePipeline) {
  EXPECT_EQ(RanksSharingExamples(MakeRun({.world_size = 4})), 1);
  EXPECT_EQ(RanksSharingExamples(MakeRun(Pipeline(4, 1))), 4);
  EXPECT_EQ(RanksSharingExamples(MakeRun(Pipeline(4, 2))), 2);
}

TEST(RanksSharingExamples, AreThoseOfOneDataParallelCoordinate) {
  // 4 pipelines of 2 ranks, of which two each share their examples.
  RunTrace run = MakeRun(Pipeline(8, 4));
  for (RankTrace& rank : run.ranks) {
    rank.run.mesh = {{"pp", 2}, {"dp", 2}, {"cp", 1}, {"tp", 2}};
  }
  EXPECT_EQ(RanksSharingExamples(run), 4);
  EXPECT_EQ(AxisSize(run.ranks[0].run, "tp"), 2);
  EXPECT_EQ(AxisSize(run.ranks[0].run, "ep"), 1);
  EXPECT_TRUE(CheckRun(run).ok());
}

TEST(CheckRun, PipelinesMustSayWhoSharesExamples) {
  RunTrace run = MakeRun(Pipeline(2, 1));
  EXPECT_TRUE(CheckRun(run).ok());
  run.ranks[1].schedules[3].replicas = 2;
  EXPECT_THAT(WhyNot(run),
              HasSubstr("rank 1 recorded 2 replicas of the pipeline, and rank "
                        "0 1"));
  run.ranks[1].schedules.clear();
  EXPECT_THAT(WhyNot(run), HasSubstr("of rank 0 and rank 1, only one has "
                                     "schedule records"));
  run.ranks[0].schedules.clear();
  EXPECT_THAT(WhyNot(run), HasSubstr("rank 0 has no schedule records, which "
                                     "say how many ranks share"));
  run = MakeRun(Pipeline(3, 1));
  for (RankTrace& rank : run.ranks) {
    for (ScheduleRecord& schedule : rank.schedules) schedule.replicas = 2;
  }
  EXPECT_THAT(WhyNot(run), HasSubstr("2 replicas of the pipeline do not divide "
                                     "3 ranks"));
}

}  // namespace
}  // namespace rankwise

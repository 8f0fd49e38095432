#include "analysis/compare/record_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "analysis/trace_for_test.h"
#include "records/record_writer.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  EXPECT_EQ(both->configurations[0].samples[0].values.size(), 2u);
  EXPECT_THAT(both->made_by,
              ElementsAre("an unknown commit, torch 2.11.0, A CPU"));
  EXPECT_EQ(LoadRecordSet(folder + "/a.jsonl", {})->runs, 1u);
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

}  // namespace
}  // namespace rankwise

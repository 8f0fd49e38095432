#include "records/record_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string RunLine(const std::string& version = "1.5") {
  RunRecord run;
  run.schema_version = version;
  return ToJsonLine(run) + "\n";
}

std::string StepLine(int64_t rank = 0) {
  StepRecord step;
  step.rank = rank;
  step.step = 1;
  return ToJsonLine(step) + "\n";
}

std::string ScheduleLine() { return ToJsonLine(ScheduleRecord()) + "\n"; }

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = absl::StrCat(testing::TempDir(), "/", name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string ErrorOf(const std::string& text, const ReadOptions& options = {}) {
  const std::string path = WriteFile("bad.jsonl", text);
  const absl::Status status = ReadRecords(path, options).status();
  EXPECT_FALSE(status.ok()) << text;
  EXPECT_THAT(std::string(status.message()), StartsWith(path));
  return std::string(status.message());
}

TEST(RecordReader, ReadsRecordsInFileOrder) {
  const std::string path =
      WriteFile("good.jsonl", RunLine() + "\n" + StepLine() + StepLine());
  const absl::StatusOr<std::vector<Record>> records = ReadRecords(path);
  ASSERT_TRUE(records.ok()) << records.status();
  ASSERT_EQ(records->size(), 3u);
  EXPECT_TRUE(std::holds_alternative<RunRecord>((*records)[0]));
  EXPECT_TRUE(std::holds_alternative<StepRecord>((*records)[2]));
}

TEST(RecordReader, BrokenLinesAreNamedByFileAndLine) {
  const std::string good = RunLine();
  EXPECT_THAT(ErrorOf(good + "\n" + "{\"kind\":\"step\"}\n"),
              HasSubstr(".jsonl:3: in the step record: the field \"rank\""));
  EXPECT_THAT(ErrorOf(good + "garbage}\n"), HasSubstr(":2: this is not JSON"));
  EXPECT_THAT(ErrorOf(good + std::string("\0\0}\n", 4)),
              HasSubstr(":2: this is not JSON"));
  EXPECT_THAT(ErrorOf(good + "{}\n"), HasSubstr(":2: the record has no"));
  EXPECT_THAT(ErrorOf("\x1f\x8b\x08 gzip?}\n"),
              HasSubstr(":1: this is not JSON"));
  EXPECT_THAT(ErrorOf(good + "{\"kind\":\"Step\"}\n"),
              HasSubstr(":2: the record kind \"Step\" is not known"));
  EXPECT_THAT(ErrorOf(RunLine("2.0") + StepLine()),
              HasSubstr(":1: the records are of schema version 2.0"));
  EXPECT_THAT(ErrorOf(StepLine() + good),
              HasSubstr(":1: a record of rank 0, which has no run record"));
  EXPECT_THAT(ErrorOf(good + StepLine(/*rank=*/3)),
              HasSubstr(":2: a record of rank 3"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("holds no record"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("holds no record"));
}

TEST(RecordReader, WindowsLineEndsAreLineEnds) {
  const std::string text = absl::StrReplaceAll(
      RunLine() + "\n" + StepLine() + StepLine(), {{"\n", "\r\n"}});
  const auto records = ReadRecords(WriteFile("crlf.jsonl", text));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(records->size(), 3u);
  EXPECT_THAT(ErrorOf(text + "{\"kind\":\"st\r\n"),
              HasSubstr(":5: a torn line of 11 bytes"));
}

TEST(RecordReader, ATornLastLineIsReportedOrTolerated) {
  const std::string whole = RunLine() + StepLine();
  for (size_t cut : {1u, 2u, 20u}) {
    const std::string text = whole.substr(0, whole.size() - cut);
    EXPECT_THAT(ErrorOf(text), HasSubstr(":2: a torn line"));
    EXPECT_THAT(ErrorOf(text), HasSubstr("no newline ends it"));
    int records = 0;
    const absl::StatusOr<ReadSummary> summary =
        VisitRecords(WriteFile("torn.jsonl", text),
                     {/*tolerate_torn_lines=*/true}, [&records](const Record&) {
                       ++records;
                       return absl::OkStatus();
                     });
    ASSERT_TRUE(summary.ok()) << summary.status();
    EXPECT_THAT(summary->torn_lines, ElementsAre(2));
    EXPECT_EQ(records, 1);
  }
}

TEST(RecordReader, AFileOfTornLinesOnlyIsNotCalledEmpty) {
  EXPECT_THAT(ErrorOf("{\"kind\n{\"kind", {/*tolerate_torn_lines=*/true}),
              HasSubstr("holds no record, only 2 torn lines;"));
}

TEST(RecordReader, ToleranceDoesNotCoverWholeBrokenLines) {
  EXPECT_THAT(ErrorOf(RunLine() + "{\"kind\":\"step\"}\n",
                      {/*tolerate_torn_lines=*/true}),
              HasSubstr(":2: in the step record"));
}

TEST(RecordReader, KindsOfANewerMinorVersionAreSkipped) {
  const std::string path =
      WriteFile("newer.jsonl",
                RunLine(absl::StrCat(kSchemaMajor, ".", kSchemaMinor + 1)) +
                    "{\"kind\":\"bubble\",\"x\":[1]}\n" + StepLine());
  int records = 0;
  const absl::StatusOr<ReadSummary> summary =
      VisitRecords(path, {}, [&records](const Record&) {
        ++records;
        return absl::OkStatus();
      });
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->unknown_kinds, 1);
  EXPECT_EQ(records, 2);
}

TEST(RecordReader, OlderMinorVersionsAreRead) {
  EXPECT_EQ(
      ReadRecords(WriteFile("old.jsonl", RunLine("1.0") + StepLine()))->size(),
      2u);
  EXPECT_EQ(
      ReadRecords(WriteFile("now.jsonl", RunLine() + ScheduleLine()))->size(),
      2u);
}

TEST(RecordReader, AKindThatItsRunsVersionLacksIsRefused) {
  EXPECT_THAT(ErrorOf(RunLine("1.0") + ScheduleLine()),
              HasSubstr(":2: a record of kind schedule, which schema version "
                        "1.1 added, under a run record of version 1.0"));
  // The latest run record of the rank decides.
  EXPECT_THAT(ErrorOf(RunLine("1.1") + RunLine("1.0") + ScheduleLine()),
              HasSubstr(":3: a record of kind schedule"));
  EXPECT_TRUE(
      ReadRecords(WriteFile("later.jsonl",
                            RunLine("1.0") + RunLine("1.1") + ScheduleLine()))
          .ok());
}

TEST(RecordReader, KindsNeedTheVersionThatAddedThem) {
  const std::vector<std::pair<int, Record>> kinds = {
      {2, CollectiveRecord()},  {2, OverlapRecord()}, {2, TrafficRecord()},
      {2, EnvironmentRecord()}, {3, MemoryRecord()},  {3, TimelineRecord()}};
  for (const auto& [minor, record] : kinds) {
    const std::string line = ToJsonLine(record) + "\n";
    const std::string before = absl::StrCat("1.", minor - 1);
    const std::string since = absl::StrCat("1.", minor);
    EXPECT_THAT(ErrorOf(RunLine(before) + line),
                HasSubstr(absl::StrCat("which schema version ", since,
                                       " added, under a run record of version ",
                                       before)));
    const std::string path = WriteFile("new.jsonl", RunLine(since) + line);
    EXPECT_TRUE(ReadRecords(path).ok()) << ReadRecords(path).status();
  }
}

TEST(RecordReader, ABrokenScheduleIsNamedByLineAndField) {
  const std::string bad = absl::StrReplaceAll(
      ScheduleLine(), {{"\"span_seconds\":0", "\"span_seconds\":-2"}});
  EXPECT_THAT(ErrorOf(RunLine() + bad),
              HasSubstr(":2: in the schedule record: \"span_seconds\" should "
                        "be a number of seconds, 0 or more, not -2"));
}

TEST(RecordReader, TheVisitorsErrorComesBackWithFileAndLine) {
  const absl::Status status =
      VisitRecords(WriteFile("stop.jsonl", RunLine()), {}, [](const Record&) {
        return absl::AbortedError("enough");
      }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), EndsWith("stop.jsonl:1: enough"));
}

TEST(RecordReader, UnreadableFilesAreNamed) {
  const absl::Status missing =
      ReadRecords(testing::TempDir() + "/none.jsonl").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/none.jsonl"));
  EXPECT_THAT(std::string(ReadRecords(testing::TempDir()).status().message()),
              HasSubstr("Is a directory"));
}

TEST(RecordReader, LinesAreWholeHoweverLongTheyAre) {
  RunRecord run;
  run.binary = std::string(5'000'000, 'x');
  const std::string text = ToJsonLine(run) + "\n" + StepLine();
  const auto records = ReadRecords(WriteFile("long.jsonl", text));
  ASSERT_TRUE(records.ok()) << records.status();
  EXPECT_EQ(std::get<RunRecord>((*records)[0]).binary, run.binary);
  EXPECT_EQ(records->size(), 2u);
}

}  // namespace
}  // namespace rankwise

#include "records/record_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "records/record_json.h"
#include "records/record_reader.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;

std::string FreshPath(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + name;
  std::remove(path.c_str());
  return path;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

RunRecord RunOfRank(int64_t rank, int64_t world_size) {
  RunRecord run;
  run.rank = rank;
  run.world_size = world_size;
  return run;
}

StepRecord Step(int64_t rank, int64_t step) {
  StepRecord record;
  record.rank = rank;
  record.step = step;
  return record;
}

std::unique_ptr<RecordWriter> OpenOrDie(const std::string& path) {
  absl::StatusOr<std::unique_ptr<RecordWriter>> writer =
      RecordWriter::Open(path);
  EXPECT_TRUE(writer.ok()) << writer.status();
  return *std::move(writer);
}

TEST(RecordWriter, WritesOneLineARecord) {
  const std::string path = FreshPath("lines.jsonl");
  auto writer = OpenOrDie(path);
  ASSERT_TRUE(writer->Write(RunOfRank(0, 1)).ok());
  ASSERT_TRUE(writer->Write(Step(0, 1)).ok());
  const std::vector<StepRecord> more = {Step(0, 2), Step(0, 3)};
  ASSERT_TRUE(writer->Write(more).ok());
  ASSERT_TRUE(writer->Write(std::vector<StepRecord>()).ok());
  // Before Close: nothing is buffered in the process.
  EXPECT_EQ(Contents(path),
            ToJsonLine(RunOfRank(0, 1)) + "\n" + ToJsonLine(Step(0, 1)) + "\n" +
                ToJsonLine(Step(0, 2)) + "\n" + ToJsonLine(Step(0, 3)) + "\n");
  EXPECT_TRUE(writer->Close().ok());
  EXPECT_TRUE(writer->Close().ok());
}

TEST(RecordWriter, AppendsToWhatIsThere) {
  const std::string path = FreshPath("append.jsonl");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(OpenOrDie(path)->Write(RunOfRank(0, 1)).ok());
  }
  EXPECT_EQ(ReadRecords(path)->size(), 2u);
}

TEST(RecordWriter, ClosesATornLineFirst) {
  const std::string path = FreshPath("torn.jsonl");
  std::ofstream(path) << ToJsonLine(RunOfRank(0, 1)) << "\n{\"kind\":\"st";
  ASSERT_TRUE(OpenOrDie(path)->Write(RunOfRank(0, 1)).ok());
  EXPECT_THAT(std::string(ReadRecords(path).status().message()),
              HasSubstr(":2: a torn line of 11 bytes"));
  EXPECT_EQ(ReadRecords(path, {/*tolerate_torn_lines=*/true})->size(), 2u);
}

TEST(RecordWriter, MissingFolderIsNamed) {
  const std::string path = testing::TempDir() + "/no/such/folder/run.jsonl";
  const absl::Status status = RecordWriter::Open(path).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its folder must exist"));
}

TEST(RecordWriter, FolderInsteadOfFile) {
  EXPECT_THAT(
      std::string(RecordWriter::Open(testing::TempDir()).status().message()),
      HasSubstr("Is a directory"));
}

TEST(RecordWriter, FullDiskIsReported) {
  auto writer = RecordWriter::Open("/dev/full");
  if (!writer.ok()) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THAT(std::string((*writer)->Write(Step(0, 1)).message()),
              HasSubstr("No space left on device"));
}

TEST(RecordWriter, WritingAfterCloseFails) {
  auto writer = OpenOrDie(FreshPath("closed.jsonl"));
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_FALSE(writer->Write(Step(0, 1)).ok());
}

// Writes records until killed; never returns.
[[noreturn]] void WriteForever(const std::string& path, int rank) {
  auto writer = RecordWriter::Open(path);
  if (!writer.ok()) _exit(1);
  (*writer)->Write(RunOfRank(rank, 2)).IgnoreError();
  for (int64_t step = 1;; ++step) {
    (*writer)->Write(Step(rank, step)).IgnoreError();
  }
}

TEST(RecordWriter, KilledRanksThatShareAFileLeaveWholeLines) {
  const std::string path = FreshPath("shared.jsonl");
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) WriteForever(path, rank);
    ASSERT_GT(pid, 0);
    ranks.push_back(pid);
  }
  usleep(50 * 1000);
  for (pid_t pid : ranks) kill(pid, SIGKILL);
  for (pid_t pid : ranks) waitpid(pid, nullptr, 0);
  std::vector<int64_t> last_step(2, 0);
  const absl::StatusOr<ReadSummary> summary = VisitRecords(
      path, {/*tolerate_torn_lines=*/true}, [&](const Record& record) {
        if (const auto* step = std::get_if<StepRecord>(&record)) {
          EXPECT_EQ(step->step, ++last_step[step->rank]);
        }
        return absl::OkStatus();
      });
  ASSERT_TRUE(summary.ok()) << summary.status();
  // The kernel may truncate each rank's interrupted write.
  EXPECT_LE(summary->torn_lines.size(), 2u);
  EXPECT_GT(summary->records, 0);
}

}  // namespace
}  // namespace rankwise

#include "analysis/study/study_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "records/record_json.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class StudyFolderTest : public testing::Test {
 protected:
  StudyFolderTest()
      : dir_(testing::TempDir() + "/" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(dir_);
  }
  void WriteRun(const std::string& name, const std::string& run_id) {
    RunRecord run;
    run.run_id = run_id;
    std::ofstream(dir_ + "/" + name) << ToJsonLine(run) << "\n";
  }
  const std::string dir_;
};

TEST_F(StudyFolderTest, IsCreatedWithItsParents) {
  ASSERT_TRUE(PrepareStudyFolder(dir_ + "/a/b").ok());
  EXPECT_TRUE(fs::is_directory(dir_ + "/a/b/logs"));
  EXPECT_TRUE(PrepareStudyFolder(dir_ + "/a/b").ok());
}

TEST_F(StudyFolderTest, RefusesWhatItCannotWriteTo) {
  const absl::Status status = PrepareStudyFolder("/proc/study");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--output_dir=/proc/study: cannot write there: "));
  std::ofstream(dir_) << "a file";
  EXPECT_FALSE(PrepareStudyFolder(dir_).ok());
}

TEST_F(StudyFolderTest, RefusesAFolderWithRecords) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  WriteRun("a.jsonl", "a");
  EXPECT_THAT(std::string(PrepareStudyFolder(dir_).message()),
              HasSubstr("holds records already"));
}

TEST_F(StudyFolderTest, RefusesAFolderWithProbesOfAnotherStudy) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  ASSERT_TRUE(PrepareStudyFolder(dir_ + "/probes", FolderUse::kResume).ok());
  EXPECT_TRUE(PrepareStudyFolder(dir_).ok());
  WriteRun("probes/a.jsonl", "a");
  EXPECT_THAT(std::string(PrepareStudyFolder(dir_).message()),
              HasSubstr("holds records already"));
}

TEST_F(StudyFolderTest, AFileIsNoFolder) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  WriteRun("a.jsonl", "a");
  EXPECT_THAT(
      std::string(LoadStudyFolder(dir_ + "/a.jsonl").status().message()),
      HasSubstr("a.jsonl: is a file; expected the folder of a study"));
}

TEST_F(StudyFolderTest, AStudyGoesOnWhereRecordsAre) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  WriteRun("a.jsonl", "a");
  EXPECT_TRUE(PrepareStudyFolder(dir_, FolderUse::kResume).ok());
}

TEST_F(StudyFolderTest, RemembersHowLongRunsTook) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  EXPECT_TRUE(ReadDurations(dir_).empty());
  AddDuration(dir_, "ddp-x2-batch32-rep1", absl::Milliseconds(2500));
  AddDuration(dir_, "comm_bench-x2", absl::Seconds(12));
  std::ofstream(dir_ + "/durations.csv", std::ios::app)
      << "a-rep1,nan\nb-rep1,inf\nc-rep1,-1\ntorn-rep2,";
  EXPECT_THAT(
      ReadDurations(dir_),
      ElementsAre(Pair("comm_bench-x2", 12), Pair("ddp-x2-batch32-rep1", 2.5)));
}

TEST_F(StudyFolderTest, LoadsRunsByNameAndNothingElse) {
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  WriteRun("b.jsonl", "second");
  WriteRun("a.jsonl", "first");
  WriteRun("c.jsonl.incomplete", "not this one");
  const auto runs = LoadStudyFolder(dir_);
  ASSERT_TRUE(runs.ok()) << runs.status();
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ((*runs)[0].ranks[0].run.run_id, "first");
}

TEST_F(StudyFolderTest, LoadingSaysWhatIsWrong) {
  EXPECT_THAT(std::string(LoadStudyFolder(dir_).status().message()),
              HasSubstr("--from=" + dir_ + ": no such file"));
  ASSERT_TRUE(PrepareStudyFolder(dir_).ok());
  EXPECT_THAT(std::string(LoadStudyFolder(dir_).status().message()),
              HasSubstr("holds no *.jsonl"));
  std::ofstream(dir_ + "/a.jsonl") << "{broken}\n";
  EXPECT_THAT(std::string(LoadStudyFolder(dir_).status().message()),
              HasSubstr("/a.jsonl:1: this is not JSON"));
}

TEST_F(StudyFolderTest, LastLines) {
  const std::string path = testing::TempDir() + "/lines";
  std::ofstream(path) << "1\n2\n3\nunfinished";
  EXPECT_EQ(LastLines(path, 2), "3\nunfinished");
  EXPECT_EQ(LastLines(path, 9), "1\n2\n3\nunfinished");
  EXPECT_EQ(LastLines(path + ".none", 9), "");
}

TEST(LockFolder, IsHeldOnce) {
  const std::string dir = testing::TempDir();
  auto first = LockFolder(dir);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = LockFolder(dir);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another study is running in this folder"));
  first->reset();
  EXPECT_TRUE(LockFolder(dir).ok());
}

TEST(LockFolder, NeedsTheFolder) {
  EXPECT_TRUE(
      absl::IsNotFound(LockFolder(testing::TempDir() + "/none").status()));
}

StudyDescription Example() {
  return {{{"world_sizes", "1,2"},
           {"seed", "18446744073709551615"},
           {"oversubscribe", "false"},
           {"model", "d\xe9 \"b\"=c"},
           {"trainer_flags", ""}},
          {{"schema_version", "1.3"},
           {"source_hash", "abc"},
           {"cpu_model", "a CPU: fast"},
           {"cores", "2"},
           {"threads_per_rank", "1"}}};
}

std::string WriteExample(const std::string& text) {
  const std::string path = testing::TempDir() + "/my.flags";
  std::ofstream(path) << text;
  return path;
}

TEST(FlagfileText, ReadsBack) {
  const auto text = FlagfileText(Example());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("\n--world_sizes=1,2\n"));
  const auto back = ReadFlagfile(WriteExample(*text));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->flags, Example().flags);
  EXPECT_EQ(back->origin, Example().origin);
}

TEST(FlagfileText, NamesTheFlagThatALineCannotHold) {
  StudyDescription study = Example();
  for (const char* value : {"a\nb", "a\x1b[2J"}) {
    study.flags["model"] = value;
    EXPECT_THAT(std::string(FlagfileText(study).status().message()),
                HasSubstr("--model: its value holds a line break or another"));
  }
}

TEST(ReadFlagfile, SaysWhatIsWrong) {
  EXPECT_EQ(ReadFlagfile("/none.flags").status().message(),
            "/none.flags: cannot be read: No such file or directory");
  EXPECT_EQ(ReadFlagfile(testing::TempDir()).status().message(),
            testing::TempDir() + ": is a folder, not a file");
  const std::string path = WriteExample("# Two sizes.\n\n--seed=1\nseed 2\n");
  EXPECT_EQ(ReadFlagfile(path).status().message(),
            path + ":4: expected --flag=value");
  WriteExample("--seed=1\n--model=\x1b[2J\n");
  EXPECT_EQ(ReadFlagfile(path).status().message(),
            path + ":2: holds a control character: \"--model=\\x1b[2J\"");
}

TEST(CheckSameStudy, NamesEveryFlagAndBothValues) {
  StudyDescription before, now;
  before.flags = {{"a", "1"}, {"b", "2"}, {"c", ""}};
  now.flags = {{"a", "1"}, {"b", "3"}, {"c", "x"}, {"new", "y"}};
  EXPECT_THAT(
      std::string(CheckSameStudy(before, now, false).message()),
      HasSubstr(": --b is 3, and was 2; --c is x, and was empty: leave"));
  EXPECT_TRUE(CheckSameStudy(before, before, false).ok());
}

TEST(CheckSameStudy, AnotherConfigurationIsAlwaysRefused) {
  StudyDescription now = Example();
  now.flags["seed"] = "1";
  for (bool force : {false, true}) {
    EXPECT_THAT(std::string(CheckSameStudy(Example(), now, force).message()),
                HasSubstr("another study than the one in the folder: --seed is "
                          "1, and was 18446744073709551615: leave these flags "
                          "out"));
  }
}

TEST(CheckSameStudy, AnotherCodeVersionOrMachineNeedsForce) {
  StudyDescription now = Example();
  now.origin["source_hash"] = "def";
  now.origin["cores"] = "4";
  EXPECT_THAT(
      std::string(CheckSameStudy(Example(), now, false).message()),
      HasSubstr("the source's hash is def, and was abc; the number of cores is "
                "4, and was 2: start another study, or pass --force"));
  EXPECT_TRUE(CheckSameStudy(Example(), now, true).ok());
  EXPECT_TRUE(CheckSameStudy(Example(), Example(), false).ok());
}

TEST(CheckSameStudy, AnUnknownSourceIsNoOther) {
  StudyDescription now = Example();
  now.origin["source_hash"] = "";
  EXPECT_TRUE(CheckSameStudy(Example(), now, false).ok());
}

}  // namespace
}  // namespace rankwise

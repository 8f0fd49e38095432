// Tests the binary through its command line.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "analysis/runs/trace_for_test.h"
#include "analysis/text/shell_for_test.h"
#include "records/record_writer.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CompareTest : public testing::Test {
 protected:
  CompareTest()
      : root_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  // Runs in the binary's runfiles, with paths relative to root_.
  Outcome Compare(const std::string& arguments) {
    return RunShell(absl::StrCat("BUILD_WORKING_DIRECTORY=", root_.string(),
                                 " analysis/compare/compare ", arguments,
                                 " 2>&1"));
  }

  // Writes a folder of `runs` runs of ddp on 2 ranks.
  void Study(const std::string& folder, double step_seconds, int runs = 5,
             int64_t batch_size = 64) {
    std::vector<double> steps;
    for (int i = 0; i < runs; ++i) {
      steps.push_back(step_seconds * (1 + 0.001 * i));
    }
    StudyOf(folder, steps, batch_size);
  }

  // Writes a folder of runs with these step durations.
  void StudyOf(const std::string& folder,
               const std::vector<double>& step_seconds,
               int64_t batch_size = 64) {
    fs::create_directories(root_ / folder);
    for (size_t i = 0; i < step_seconds.size(); ++i) {
      RunTrace run = MakeRun({.world_size = 2,
                              .batch_size = batch_size,
                              .step_seconds = step_seconds[i],
                              .run_id = absl::StrCat(folder, "-", i)});
      for (RankTrace& rank : run.ranks) rank.run.source_hash = source_hash_;
      auto writer =
          RecordWriter::Open(root_ / folder / absl::StrCat(i, ".jsonl"));
      ASSERT_TRUE(writer.ok()) << writer.status();
      for (const RankTrace& trace : run.ranks) {
        ASSERT_TRUE((*writer)->Write(Record(trace.run)).ok());
        ASSERT_TRUE((*writer)->Write(trace.steps).ok());
        if (!with_memory_) continue;
        ASSERT_TRUE((*writer)
                        ->Write(MemoryRecord{trace.run.rank, peak_bytes_, 0})
                        .ok());
      }
    }
  }

  const fs::path root_;
  std::string source_hash_ = "a";  // of the records written by Study()
  bool with_memory_ = false;       // whether Study() records memory
  int64_t peak_bytes_ = 1000;
};

TEST_F(CompareTest, ARegressionIsExitCode1) {
  Study("before", 0.1);
  Study("after", 0.12);
  const Outcome worse = Compare("before after");
  EXPECT_EQ(worse.exit_code, 1) << worse.output;
  EXPECT_THAT(worse.output,
              HasSubstr("\nWorse by more than 5 %: ddp on 2 ranks, batch 64, "
                        "step_seconds (1.200 [1.197, 1.203]); ddp"));
  const Outcome better = Compare("after before");
  EXPECT_EQ(better.exit_code, 0) << better.output;
  EXPECT_THAT(better.output, HasSubstr("\nNot worse by more than 5 %: all "));
  const Outcome within = Compare("--threshold=0.3 before after");
  EXPECT_EQ(within.exit_code, 0) << within.output;
  EXPECT_THAT(within.output, HasSubstr("\nEquivalent within 30 %: all "));
}

TEST_F(CompareTest, AnInconclusiveFigureIsExitCode3) {
  StudyOf("before", {0.077, 0.130});
  StudyOf("after", {0.0793, 0.1339});
  const Outcome open = Compare("--metrics=step_seconds before after");
  EXPECT_EQ(open.exit_code, 3) << open.output;
  EXPECT_THAT(open.output,
              HasSubstr("\nCannot say for 1 of 1 figures, which may be worse "
                        "by more than 5 %: ddp on 2 ranks, batch 64, "
                        "step_seconds (1.030 [0.209, 5.069]); more repetitions "
                        "may decide.\n"));
  // A worse figure takes precedence.
  with_memory_ = true;
  StudyOf("little", {0.077, 0.130});
  peak_bytes_ = 1200;
  StudyOf("much", {0.0793, 0.1339});
  const Outcome worse = Compare("little much");
  EXPECT_EQ(worse.exit_code, 1) << worse.output;
  EXPECT_THAT(worse.output, HasSubstr("peak_bytes (1.200 [1.200, 1.200]).\n"
                                      "Cannot say for "));
}

TEST_F(CompareTest, AlphaIsWhatThePMustBeBelow) {
  Study("before", 0.1, 2);
  Study("after", 0.12, 2);
  EXPECT_EQ(Compare("before after").exit_code, 1);
  EXPECT_EQ(Compare("--alpha=0.00001 before after").exit_code, 3);
}

TEST_F(CompareTest, UnknownCodeIsComparedByForceOnly) {
  Study("known", 0.1);
  source_hash_ = "b";
  Study("other", 0.1);
  EXPECT_EQ(Compare("known other").exit_code, 0);
  source_hash_ = "";
  Study("unknown", 0.1);
  for (const char* sides : {"unknown known", "known unknown"}) {
    const Outcome refused = Compare(sides);
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_THAT(refused.output,
                HasSubstr("unknown: the repetitions of ddp on 2 ranks, batch "
                          "64 ran code that their records do not name; "
                          "--force"));
    const Outcome forced = Compare(absl::StrCat("--force ", sides));
    EXPECT_EQ(forced.exit_code, 0) << forced.output;
    EXPECT_THAT(forced.output, HasSubstr("ran code that their records"));
  }
}

TEST_F(CompareTest, EqualTimesAreExitCode0AndTooFewRunsExitCode3) {
  Study("before", 0.1);
  Study("same", 0.1);
  Study("few", 0.3, 3);
  const Outcome same = Compare("before same");
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_THAT(same.output, HasSubstr("\nEquivalent within 5 %: all 4 figures"));
  const Outcome few = Compare("few/0.jsonl before");
  EXPECT_EQ(few.exit_code, 3);
  EXPECT_THAT(few.output, HasSubstr("\nCannot say for 4 of 4 figures, "));
}

TEST_F(CompareTest, AsAGateAllOfAMustBeJudged) {
  Study("before", 0.1);
  Study("after", 0.1);
  EXPECT_EQ(Compare("--require_all before after").exit_code, 0);
  Study("before/more", 0.1, 5, 32);
  for (int i = 0; i < 5; ++i) {
    fs::rename(root_ / absl::StrCat("before/more/", i, ".jsonl"),
               root_ / absl::StrCat("before/more-", i, ".jsonl"));
  }
  EXPECT_EQ(Compare("before after").exit_code, 0);
  EXPECT_EQ(Compare("--require_all after before").exit_code, 0);
  const Outcome lost = Compare("--require_all before after");
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.output, HasSubstr("Not all of A was compared "
                                     "(--require_all): B lacks ddp on 2 ranks, "
                                     "batch 32"));
}

TEST_F(CompareTest, AsAGateAMetricMustNotDisappear) {
  Study("after", 0.1);
  with_memory_ = true;
  Study("before", 0.1);
  const Outcome lost = Compare("--require_all before after");
  EXPECT_EQ(lost.exit_code, 3);
  EXPECT_THAT(lost.output,
              HasSubstr("\nNote: only in A: ddp on 2 ranks, batch 64, "
                        "peak_bytes.\n"));
  EXPECT_THAT(lost.output,
              HasSubstr("B lacks ddp on 2 ranks, batch 64, peak_bytes.\n"));
  EXPECT_EQ(Compare("before after").exit_code, 0);
  EXPECT_EQ(Compare("--require_all after before").exit_code, 0);
}

TEST_F(CompareTest, WritesCsv) {
  Study("before", 0.1);
  Study("after", 0.12);
  EXPECT_EQ(
      Compare("--csv=table.csv --metrics=step_seconds before after").exit_code,
      1);
  std::stringstream csv;
  csv << std::ifstream(root_ / "table.csv").rdbuf();
  EXPECT_THAT(csv.str(),
              HasSubstr("\n\"ddp on 2 ranks, batch 64\",step_seconds,slower,"
                        "run,5,5,"));
  EXPECT_EQ(Compare("--csv=none/table.csv before after").exit_code, 2);
}

TEST_F(CompareTest, WritesMarkdownAlsoWhereThereIsNothingToCompare) {
  Study("before", 0.1);
  Study("after", 0.12);
  const auto markdown = [this] {
    std::stringstream text;
    text << std::ifstream(root_ / "report.md").rdbuf();
    return text.str();
  };
  EXPECT_EQ(Compare("--markdown=report.md before after").exit_code, 1);
  EXPECT_THAT(markdown(), HasSubstr("### Performance: failed\n\n- Worse by"));
  EXPECT_EQ(Compare("--markdown=report.md after before").exit_code, 0);
  EXPECT_THAT(markdown(), HasSubstr("### Performance: passed\n"));
  EXPECT_EQ(Compare("--markdown=report.md before/0.jsonl after").exit_code, 3);
  EXPECT_THAT(markdown(), HasSubstr("### Performance: cannot say\n\n- Cannot"));
  EXPECT_EQ(Compare("--markdown=report.md before missing").exit_code, 2);
  EXPECT_THAT(markdown(), HasSubstr("### Performance: not compared\n\n- "));
  EXPECT_EQ(Compare("--markdown=none/report.md before after").exit_code, 2);
}

TEST_F(CompareTest, RecordsThatCannotBeComparedAreExitCode2) {
  Study("before", 0.1);
  Study("other", 0.1, 5, 32);
  fs::create_directories(root_ / "empty");
  std::ofstream(root_ / "broken.jsonl") << "{\"kind\":\"ru\"}\n";
  const auto complains = [this](const std::string& arguments,
                                const std::string& message) {
    const Outcome outcome = Compare(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << arguments;
  };
  complains("before empty", "empty");
  complains("before missing", "missing");
  complains("before broken.jsonl", "broken.jsonl");
  complains("before other",
            "have no configuration in common. ddp on 2 ranks, batch 64 is in "
            "both, but for batch per rank: \"64\" and \"32\"");
}

TEST_F(CompareTest, ACopyOfARunIsRefused) {
  Study("before", 0.1);
  fs::copy(root_ / "before", root_ / "copy");
  const Outcome copy = Compare("before copy");
  EXPECT_EQ(copy.exit_code, 2);
  EXPECT_THAT(copy.output, HasSubstr("the run before-0 is in both "));
}

TEST_F(CompareTest, TornLinesAreNamed) {
  Study("before", 0.1);
  Study("after", 0.1);
  std::ofstream(root_ / "after/3.jsonl", std::ios::app)
      << "{\"kind\":\"mem\n{\"kind\":\"ste";
  const Outcome torn = Compare("before after");
  EXPECT_EQ(torn.exit_code, 0) << torn.output;
  for (const char* line : {"43", "44"}) {
    EXPECT_THAT(torn.output,
                HasSubstr(absl::StrCat(
                    "\nLeft out of B: ", (root_ / "after/3.jsonl").string(),
                    ":", line, ": a torn line")));
  }
}

TEST_F(CompareTest, ReadsWindowsLineEnds) {
  Study("before", 0.1);
  Study("after", 0.12);
  for (const auto& entry : fs::directory_iterator(root_ / "after")) {
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    std::ofstream(entry.path())
        << absl::StrReplaceAll(text.str(), {{"\n", "\r\n"}});
  }
  const Outcome worse = Compare("before after");
  EXPECT_EQ(worse.exit_code, 1);
  EXPECT_THAT(worse.output, HasSubstr("step_seconds (1.200 ["));
}

TEST_F(CompareTest, BadUsageIsExitCode2AndSaysWhatIsWrong) {
  Study("before", 0.1);
  Study("other", 0.1, 5, 32);
  const auto complains = [this](const std::string& arguments,
                                const std::string& message) {
    const Outcome outcome = Compare(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.output;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << arguments;
  };
  complains("", "expected two record files or folders");
  complains("before", "and got 1");
  complains("before other before", "and got 3");
  complains("before before", "is both A and B");
  complains("before ./empty/../before/", "is both A and B");
  complains("--threshold=-1 before other", "--threshold=-1: expected");
  complains("--alpha=2 before other", "--alpha=2: expected");
  complains("--metrics=speed before other", "there is no \"speed\"");
  complains("--repetitions_of_calls=steps before other", "expected launches");
  complains("--warmup_steps=-1 before other", "--warmup_steps: expected");
  complains("--treshold=1 before other", "Unknown command line flag");
  complains("--alpha=small before other", "Illegal value 'small'");
}

}  // namespace
}  // namespace rankwise

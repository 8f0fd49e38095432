// Runs the binary as a user does.

#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Result {
  int exit_code;
  std::string output;  // stdout and stderr
};

Result Show(const std::string& flags) {
  FILE* pipe =
      popen(("parallel/pipeline/show " + flags + " 2>&1").c_str(), "r");
  std::string output;
  for (int byte = fgetc(pipe); byte != EOF; byte = fgetc(pipe)) {
    output.push_back(static_cast<char>(byte));
  }
  return {WEXITSTATUS(pclose(pipe)), output};
}

void ExpectRefused(const std::string& flags, const std::string& message) {
  const Result result = Show(flags);
  EXPECT_EQ(result.exit_code, 2) << flags;
  EXPECT_THAT(result.output, AllOf(StartsWith("show: "), HasSubstr(message)))
      << flags;
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ShowTest, PrintsTimelineBubblesAndActivations) {
  const Result result = Show("--schedule=1f1b --pp=2 --microbatches=2");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.output,
      "1f1b: 2 ranks, 2 stages, 2 micro-batches\n"
      "each stage: F 1 s, B 2 s = I 1 s + W 1 s; a message: 0 s\n"
      "\n"
      "rank 0 |F0 F1 ......B0=== ...B1=== |\n"
      "rank 1 |...F0 B0=== F1 B1=== ......|\n"
      "F forward, B backward, of micro-batch 3: F3; . idle; a column is "
      "0.333 s\n"
      "\n"
      "                                       simulated   formula  (messages "
      "take no time)\n"
      "time, first start to last end                9 s          \n"
      "bubble, wall clock                        33.3 %    33.3 %  "
      "(p-1)/(m+p-1)\n"
      "bubble, within each rank's own span       16.7 %    16.7 %\n"
      "peak activations, in micro-batches             2         2  on the rank "
      "with most\n"
      "\n"
      "rank      busy s  bubble, wall  bubble, span  peak activations  stages\n"
      "0              6        33.3 %        33.3 %                 2  0\n"
      "1              6        33.3 %         0.0 %                 1  1\n");
}

TEST(ShowTest, BubblesOfTheLargerSchedules) {
  EXPECT_THAT(Show("--schedule=interleaved_1f1b --pp=4 --microbatches=8 "
                   "--chunks=2")
                  .output,
              ContainsRegex("wall clock +15.8 % +15.8 %"));
  EXPECT_THAT(Show("--schedule=zbv --pp=8 --microbatches=32").output,
              AllOf(ContainsRegex("wall clock +3.5 % +3.5 %"),
                    HasSubstr("too large to be drawn in 120 columns")));
}

TEST(ShowTest, ThePapersFigureOfOverlappedPairs) {
  EXPECT_THAT(
      Show("--schedule=dualpipev --pp=4 --microbatches=8 --overlap=1").output,
      AllOf(ContainsRegex("last end +44 s"),
            ContainsRegex("wall clock +3.4 % +3.4 %"),
            ContainsRegex("own span +0.0 % +0.0 %"),
            ContainsRegex("rank with most +3 s +3 s +.p-1..F&B.B-3W"),
            ContainsRegex("micro-batches +4.5 +4.5 ")));
}

TEST(ShowTest, PlansForTheCostsOfEachStage) {
  const std::string output =
      Show(
          "--schedule=zero_bubble_auto:3 --pp=2 --microbatches=4 "
          "--costs=1,1,1/1,2,0.5")
          .output;
  EXPECT_THAT(output,
              AllOf(HasSubstr("stage 1: F 1 s, B 2.5 s = I 2 s + W 0.5"),
                    ContainsRegex("wall clock +[0-9.]+ % +-")));
}

TEST(ShowTest, CostsAndMessages) {
  const std::string output =
      Show(
          "--schedule=gpipe --pp=2 --microbatches=1 --costs=2,3,4 "
          "--link=0.5,1e-3 --bytes=500")
          .output;
  // 2 stages of 9 seconds, two messages of 1 second.
  EXPECT_THAT(output,
              AllOf(HasSubstr("F 2 s, B 7 s = I 3 s + W 4 s; a message: 1 s"),
                    ContainsRegex("last end +20 s"),
                    ContainsRegex("wall clock +55.0 % +50.0 %")));
}

TEST(ShowTest, WritesFilesWhereTheCommandWasTyped) {
  const std::string folder = testing::TempDir() + "typed_here";
  std::filesystem::create_directory(folder);
  setenv("BUILD_WORKING_DIRECTORY", folder.c_str(), 1);
  const Result written = Show(
      "--schedule=zbv --pp=2 --microbatches=3 --trace=out.json "
      "--csv=out.csv");
  EXPECT_EQ(written.exit_code, 0) << written.output;
  EXPECT_THAT(ReadFile(folder + "/out.json"),
              AllOf(StartsWith("{\"displayTimeUnit\""), HasSubstr("F0 (stage "),
                    HasSubstr("\"simulated\"")));
  EXPECT_THAT(ReadFile(folder + "/out.csv"), StartsWith("0F0,0F1,0F2,3F0,"));
  // User paths are also read there; the file defines its own shape.
  const Result read = Show("--schedule=out.csv");
  EXPECT_EQ(read.exit_code, 0) << read.output;
  EXPECT_THAT(read.output,
              AllOf(HasSubstr("out.csv: 2 ranks, 4 stages, 3 micro-batches"),
                    ContainsRegex("wall clock +5.3 % +-")));
  unsetenv("BUILD_WORKING_DIRECTORY");
}

TEST(ShowTest, AFileThatDeadlocksIsExplained) {
  const std::string path =
      WriteFile("circle.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  ExpectRefused(
      "--schedule=" + path,
      "circle.csv: deadlock, ranks wait for each other in a cycle:\n"
      "  rank 0, action 2 (0B0) waits for 1B0, which is action 3 of rank 1\n"
      "  rank 1, action 2 (1F1) waits for 0F1, which is action 3 of rank 0\n");
}

TEST(ShowTest, RefusesFilesThatAreNoSchedule) {
  ExpectRefused("--schedule=" + WriteFile("bad.csv", "0F0,zero\n"),
                "bad.csv, row 1, column 2: \"zero\"");
  ExpectRefused("--schedule=" + WriteFile("bell.csv", "0F0,\x1b[2J\n"),
                "bell.csv, row 1, column 2: \"\\x1b[2J\"");
  ExpectRefused("--schedule=" + WriteFile("small.csv", "0F0,0B0\n") + " --pp=2",
                "--pp=2 does not fit");
  ExpectRefused("--schedule=/nowhere/my.csv", "nor a file");
}

TEST(ShowTest, RefusesWhatMakesNoSense) {
  ExpectRefused("--schedule=2f2b", "neither one of naive, gpipe, 1f1b");
  ExpectRefused("--pp=-1", "--pp=-1: must be at least 1");
  ExpectRefused("--microbatches=-1", "--microbatches=-1: must be at least 1");
  ExpectRefused("--schedule=1f1b --chunks=2", "--chunks=2: --schedule=1f1b");
  ExpectRefused("--costs=1,2", "--costs=1,2: must be F,I,W: 3 finite numbers");
  ExpectRefused("--costs=nan,1,1", "--costs=nan,1,1: must be F,I,W: 3 finite");
  ExpectRefused("--costs=1,2,3,x", "--costs=1,2,3,x: must be F,I,W");
  ExpectRefused("--costs=1,2,-3", "--costs=1,2,-3: must be F,I,W");
  ExpectRefused("--costs=0,0,0", "--costs=0,0,0: one must be above 0");
  ExpectRefused("--costs=1,1,1/1,1", "--costs=1,1: must be F,I,W: 3 finite");
  ExpectRefused("--costs=1,1,1/1,1,1", "costs of 2 stages for 4 stages");
  ExpectRefused("--overlap=2", "--overlap=2: must be from 0 to 1");
  ExpectRefused("--link=1", "--link=1: must be alpha,beta: 2 finite numbers");
  ExpectRefused("--link=0,1", "beta is per byte");
  ExpectRefused("--bytes=-1", "--bytes=-1: must not be negative");
  ExpectRefused("--width=-1", "--width=-1: must not be negative");
  ExpectRefused("--pp=100000 --microbatches=100000", "too large");
  ExpectRefused("typo", "unexpected argument \"typo\"");
}

TEST(ShowTest, FlagsThatAbseilRefusesAreBadUsageToo) {
  const Result unknown = Show("--peepee=4"), illegal = Show("--pp=four");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output, HasSubstr("Unknown command line flag 'peepee'"));
  EXPECT_EQ(illegal.exit_code, 2);
  EXPECT_THAT(illegal.output,
              HasSubstr("Illegal value 'four' specified for flag 'pp'"));
}

TEST(ShowTest, AFileThatCannotBeWrittenIsNamed) {
  for (const std::string flag : {"--trace", "--csv"}) {
    const Result result = Show(flag + "=/nowhere/out");
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("show: writing /nowhere/out"));
  }
}

TEST(ShowTest, HelpNamesTheFlags) {
  EXPECT_THAT(Show("--help").output,
              AllOf(HasSubstr("--schedule=1f1b --pp=4"),
                    HasSubstr("--microbatches"), HasSubstr("--costs"),
                    HasSubstr("seconds"), Not(HasSubstr("ERROR"))));
}

}  // namespace
}  // namespace rankwise

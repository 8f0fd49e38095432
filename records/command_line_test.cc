#include "records/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"

ABSL_FLAG(int, size, 3, "a number");
ABSL_FLAG(bool, fast, false, "a switch");

namespace rankwise {
namespace {

std::vector<char*> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  static std::vector<std::string> kept;
  std::vector<char*> rest =
      ParseFlags(static_cast<int>(argv.size()), argv.data());
  kept.assign(rest.begin(), rest.end());
  for (size_t i = 0; i < rest.size(); ++i) rest[i] = kept[i].data();
  return rest;
}

TEST(ParseFlagsTest, ParsesAndLeavesWhatIsNoFlag) {
  const std::vector<char*> rest = Parse({"--size=7", "file", "--fast"});
  EXPECT_EQ(absl::GetFlag(FLAGS_size), 7);
  EXPECT_TRUE(absl::GetFlag(FLAGS_fast));
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_STREQ(rest[1], "file");
}

TEST(ParseFlagsTest, FlagFilesMayComeFromAnotherSystem) {
  const std::string file = testing::TempDir() + "/other_system.flags";
  const std::string within = testing::TempDir() + "/within.flags";
  std::ofstream(file) << "\xef\xbb\xbf# a study\r\n--size=8\r\n\r\n"
                      << "  --nofast\r\n--flagfile=" << within << "\r\n";
  std::ofstream(within) << "--size=9\r\n";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"--size=7", "--fast", "--flagfile=" + file},
           {"--size=7", "--fast", "--flagfile", file}}) {
    EXPECT_EQ(Parse(arguments).size(), 1u);
    EXPECT_EQ(absl::GetFlag(FLAGS_size), 9);
    EXPECT_FALSE(absl::GetFlag(FLAGS_fast));
  }
  Parse({"--flagfile=" + file, "--size=7"});
  EXPECT_EQ(absl::GetFlag(FLAGS_size), 7);
  EXPECT_EQ(Parse({"--", "--flagfile=" + file}).size(), 2u);
}

TEST(ParseFlagsTest, AnEmptyFlagfileNamesNoFile) {
  const std::string file = testing::TempDir() + "/size.flags";
  std::ofstream(file) << "--size=6\n";
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{
           {"--flagfile="}, {"--flagfile", ""}, {"--flagfile=,"}}) {
    EXPECT_EQ(Parse(arguments).size(), 1u);
  }
  Parse({"--size=7", "--flagfile=," + file + ","});
  EXPECT_EQ(absl::GetFlag(FLAGS_size), 6);
}

TEST(ParseFlagsDeathTest, EveryWrongFlagIsExitCode2) {
  const std::string file = testing::TempDir() + "/flags";
  std::ofstream(file) << "--sise=1\n";
  const std::string words = testing::TempDir() + "/words";
  std::ofstream(words) << "# flags\nsize 1\n";
  const std::string itself = testing::TempDir() + "/itself";
  std::ofstream(itself) << "--flagfile=" << itself << "\n";
  for (const auto& [argument, complaint] :
       std::vector<std::pair<std::string, std::string>>{
           {"--sise=3", "Unknown command line flag 'sise'"},
           {"--size=x", "Illegal value 'x' specified for flag 'size'"},
           {"--size", "Missing the value for the flag 'size'"},
           {"--fast=maybe", "Illegal value 'maybe'"},
           {"--flagfile=" + file, "Unknown command line flag 'sise'"},
           {"--flagfile=/none", "--flagfile=/none: cannot be read: No such"},
           {"--flagfile=/dev", "--flagfile=/dev: is a folder"},
           {"--flagfile=" + words, "line 2: expected --flag=value, not "},
           {"--flagfile=" + itself, "more than 16 deep"},
           {"--fromenv=size", "FLAGS_size not found in environment"}}) {
    EXPECT_EXIT(Parse({argument}), testing::ExitedWithCode(kBadUsage),
                complaint);
  }
}

TEST(ParseFlagsDeathTest, HelpIsNoFailure) {
  EXPECT_EXIT(Parse({"--help"}), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(Parse({"--version"}), testing::ExitedWithCode(0), "");
}

TEST(ParseFlagsDeathTest, WhatEndsLaterKeepsItsExitCode) {
  EXPECT_EXIT(
      {
        Parse({"--size=1"});
        std::exit(1);
      },
      testing::ExitedWithCode(1), "");
}

TEST(ParseFlagsDeathTest, AWriteToABrokenPipeFailsAndDoesNotEndTheProcess) {
  EXPECT_EXIT(
      {
        Parse({});
        int ends[2];
        if (pipe(ends) != 0) std::exit(3);
        close(ends[0]);
        std::exit(write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 4);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ExitCode, IsThatOfBadUsageForInvalidArgument) {
  EXPECT_EQ(ExitCode(absl::InvalidArgumentError("a flag")), kBadUsage);
  EXPECT_EQ(ExitCode(absl::FailedPreconditionError("a run")), kFailed);
}

TEST(DiffersFromDefaultTest, ATypedDefaultDoesNot) {
  const absl::CommandLineFlag& size = absl::GetFlagReflectionHandle(FLAGS_size);
  Parse({"--size=3"});
  EXPECT_FALSE(DiffersFromDefault(size));
  Parse({"--size=4"});
  EXPECT_TRUE(DiffersFromDefault(size));
}

class UserPathTest : public testing::Test {
 protected:
  ~UserPathTest() override { unsetenv("BUILD_WORKING_DIRECTORY"); }
};

TEST_F(UserPathTest, IsFromWhereTheCommandWasTyped) {
  setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1);
  EXPECT_EQ(UserPath("a/../b.jsonl"), "/home/user/b.jsonl");
  EXPECT_EQ(UserPath("../b"), "/home/b");
  EXPECT_EQ(UserPath("/tmp/b"), "/tmp/b");
  EXPECT_EQ(UserPath("folder/"), "/home/user/folder");
  EXPECT_EQ(UserPath(""), "");
}

TEST_F(UserPathTest, WithoutBazelIsFromTheCurrentFolder) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(UserPath("b"), (std::filesystem::current_path() / "b").string());
  EXPECT_EQ(UserPath(""), "");
}

TEST(Quoted, IsShortAndPrintable) {
  EXPECT_EQ(Quoted(""), "\"\"");
  EXPECT_EQ(Quoted("0X1"), "\"0X1\"");
  EXPECT_EQ(Quoted("a\x1b[2J\r\xff"), "\"a\\x1b[2J\\r\\xff\"");
  EXPECT_EQ(Quoted(absl::string_view("\0", 1)), "\"\\x00\"");
  EXPECT_EQ(Quoted(std::string(40, 'a')), "\"" + std::string(40, 'a') + "\"");
  EXPECT_EQ(Quoted(std::string(1 << 20, 'a')),
            "\"" + std::string(40, 'a') + "...\"");
}

}  // namespace

}  // namespace rankwise

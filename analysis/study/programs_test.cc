#include "analysis/study/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/time/clock.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainerPathTest : public testing::Test {
 protected:
  TrainerPathTest()
      : root_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
  }
  void MakeBinary(const std::string& path) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << "#!/bin/sh\n";
    fs::permissions(root_ / path, fs::perms::owner_all);
  }
  std::string Study() { return (root_ / "bin/analysis/study/study").string(); }

  const fs::path root_;
};

TEST_F(TrainerPathTest, RunfilesComeFirst) {
  MakeBinary("bin/analysis/study/study.runfiles/rankwise/trainers/ddp");
  MakeBinary("bin/trainers/ddp");
  EXPECT_THAT(*FindTrainerDir(Study()),
              HasSubstr("runfiles/rankwise/trainers"));
}

TEST_F(TrainerPathTest, ElseTheTreeOfOutputs) {
  MakeBinary("bin/trainers/ddp");
  EXPECT_EQ(*FindTrainerDir(Study()), (root_ / "bin/trainers").string());
}

TEST_F(TrainerPathTest, NowhereSaysWhatToDo) {
  EXPECT_THAT(std::string(FindTrainerDir(Study()).status().message()),
              HasSubstr("`./bazelw run //:study`, or pass --trainer_dir"));
}

TEST_F(TrainerPathTest, CommBenchIsBesideTheTrainers) {
  const std::string trainers = (root_ / "trainers").string();
  MakeBinary("trainers/ddp");
  EXPECT_THAT(std::string(CommBenchPath(trainers).status().message()),
              HasSubstr("go without by --comm_bench=false"));
  MakeBinary("comm_bench/comm_bench");
  EXPECT_EQ(*CommBenchPath(trainers),
            (root_ / "comm_bench/comm_bench").string());
  MakeBinary("trainers/comm_bench");
  EXPECT_EQ(*CommBenchPath(trainers), (root_ / "trainers/comm_bench").string());
}

TEST_F(TrainerPathTest, PlotlyIsInTheRunfiles) {
  EXPECT_THAT(std::string(FindPlotly(Study()).status().message()),
              HasSubstr("go without a report by --report=false"));
  MakeBinary("bin/analysis/study/study.runfiles/plotly/plotly.min.js");
  EXPECT_EQ(*FindPlotly(Study()), Study() + ".runfiles/plotly/plotly.min.js");
}

TEST_F(TrainerPathTest, OnlyExecutableFilesAreTrainers) {
  MakeBinary("ddp");
  std::ofstream(root_ / "single") << "text";
  fs::create_directory(root_ / "folder");
  EXPECT_EQ(*TrainerPath(root_.string(), "ddp"), (root_ / "ddp").string());
  for (const char* bad : {"single", "folder", "missing"}) {
    const auto path = TrainerPath(root_.string(), bad);
    ASSERT_FALSE(path.ok()) << bad;
    EXPECT_THAT(std::string(path.status().message()),
                HasSubstr(std::string(bad) + " is not an executable file"));
  }
}

using ::testing::HasSubstr;

class SubprocessTest : public testing::Test {
 protected:
  Command Shell(const std::string& script) {
    Command command;
    command.arguments = {"/bin/sh", "-c", script};
    command.output_path = log_;
    return command;
  }
  std::string Log() {
    std::stringstream text;
    text << std::ifstream(log_).rdbuf();
    return text.str();
  }
  CommandEnd RunOrDie(const Command& command) {
    absl::StatusOr<CommandEnd> end = RunCommand(command);
    EXPECT_TRUE(end.ok()) << end.status();
    return *end;
  }

  const HeldSignals held_;
  const std::string log_ = testing::TempDir() + "/log";
};

TEST_F(SubprocessTest, CollectsBothOutputs) {
  const CommandEnd end = RunOrDie(Shell("echo out; echo err >&2"));
  EXPECT_TRUE(end.ok());
  EXPECT_THAT(Log(), HasSubstr("out\n"));
  EXPECT_THAT(Log(), HasSubstr("err\n"));
}

TEST_F(SubprocessTest, TellsHowItEnded) {
  const CommandEnd failed = RunOrDie(Shell("exit 3"));
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.Describe(), "exited with code 3");
  const CommandEnd killed = RunOrDie(Shell("kill -9 $$"));
  EXPECT_FALSE(killed.ok());
  EXPECT_EQ(killed.Describe(), "was killed by signal 9 (Killed)");
}

TEST_F(SubprocessTest, InputIsEmpty) {
  EXPECT_TRUE(RunOrDie(Shell("cat")).ok());
}

TEST_F(SubprocessTest, WhatCannotBeExecutedIsNamed) {
  Command command = Shell("");
  command.arguments = {"/no/such/binary"};
  EXPECT_EQ(RunOrDie(command).exit_code, 127);
  EXPECT_THAT(Log(), HasSubstr("cannot execute /no/such/binary: No such file"));
}

TEST_F(SubprocessTest, AnUnwritableLogIsNamed) {
  Command command = Shell("true");
  command.output_path = "/no/such/folder/log";
  EXPECT_THAT(std::string(RunCommand(command).status().message()),
              HasSubstr("opening the log /no/such/folder/log"));
}

TEST_F(SubprocessTest, TheTimeoutEndsIt) {
  Command command = Shell("sleep 600");
  command.timeout = absl::Milliseconds(100);
  const CommandEnd end = RunOrDie(command);
  EXPECT_TRUE(end.timed_out);
  EXPECT_THAT(end.Describe(), HasSubstr("did not end within"));
}

TEST_F(SubprocessTest, WhatIgnoresTheEndIsKilled) {
  Command command = Shell("trap '' TERM; while true; do sleep 600; done");
  command.timeout = absl::Milliseconds(200);
  command.grace = absl::Milliseconds(200);
  const CommandEnd end = RunOrDie(command);
  EXPECT_TRUE(end.timed_out);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST_F(SubprocessTest, ASignalToUsEndsIt) {
  // The command itself sends the Ctrl-C to this process.
  const CommandEnd end = RunOrDie(Shell("kill -INT $PPID; sleep 600"));
  EXPECT_EQ(end.interrupted_by, SIGINT);
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(end.Describe(), "was interrupted");
}

TEST_F(SubprocessTest, NothingOfItIsLeftRunning) {
  RunOrDie(Shell("sleep 600 & echo $!"));
  const pid_t left = std::stoi(Log());
  // Killed; it is gone as soon as init has taken note.
  for (int i = 0; i < 500 && kill(left, 0) == 0; ++i) {
    std::ifstream stat("/proc/" + std::to_string(left) + "/stat");
    std::string text;
    std::getline(stat, text);
    if (text.find(") Z ") != std::string::npos) return;
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_EQ(kill(left, 0), -1);
}

}  // namespace

}  // namespace rankwise

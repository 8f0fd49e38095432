#include "analysis/study/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/time/clock.h"
#include "records/command_line.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ProgramPathTest : public testing::Test {
 protected:
  ProgramPathTest()
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

TEST_F(ProgramPathTest, RunfilesComeFirst) {
  MakeBinary("bin/analysis/study/study.runfiles/rankwise/trainers/ddp");
  MakeBinary("bin/trainers/ddp");
  EXPECT_THAT(*FindTrainerDir(Study()),
              HasSubstr("runfiles/rankwise/trainers"));
}

TEST_F(ProgramPathTest, ElseTheTreeOfOutputs) {
  MakeBinary("bin/trainers/ddp");
  EXPECT_EQ(*FindTrainerDir(Study()), (root_ / "bin/trainers").string());
}

TEST_F(ProgramPathTest, NowhereSaysWhatToDo) {
  EXPECT_THAT(std::string(FindTrainerDir(Study()).status().message()),
              HasSubstr("`./bazelw run //:study`, or pass --trainer_dir"));
}

TEST_F(ProgramPathTest, CommBenchIsBesideTheTrainers) {
  const std::string trainers = (root_ / "trainers").string();
  MakeBinary("trainers/ddp");
  EXPECT_THAT(
      std::string(ProgramPath(trainers, "comm_bench").status().message()),
      HasSubstr("go without by --comm_bench=false"));
  MakeBinary("comm_bench/comm_bench");
  EXPECT_EQ(*ProgramPath(trainers, "comm_bench"),
            (root_ / "comm_bench/comm_bench").string());
  MakeBinary("trainers/comm_bench");
  EXPECT_EQ(*ProgramPath(trainers, "comm_bench"),
            (root_ / "trainers/comm_bench").string());
}

TEST_F(ProgramPathTest, OnlyExecutableFilesAreTrainers) {
  MakeBinary("ddp");
  std::ofstream(root_ / "single") << "text";
  fs::create_directory(root_ / "folder");
  EXPECT_EQ(*ProgramPath(root_.string(), "ddp"), (root_ / "ddp").string());
  for (const char* bad : {"single", "folder", "missing"}) {
    const auto path = ProgramPath(root_.string(), bad);
    ASSERT_FALSE(path.ok()) << bad;
    EXPECT_THAT(std::string(path.status().message()),
                HasSubstr(std::string(bad) + " is not an executable file"));
  }
}

using ::testing::HasSubstr;

class CommandTest : public testing::Test {
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

  const std::string log_ = testing::TempDir() + "/log";
};

class SubprocessTest : public CommandTest {
 protected:
  HeldSignals signals_;
};

TEST_F(SubprocessTest, CollectsBothOutputs) {
  const absl::Status end =
      RunCommand(Shell("echo out; echo err >&2"), signals_);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_THAT(Log(), HasSubstr("out\n"));
  EXPECT_THAT(Log(), HasSubstr("err\n"));
}

TEST_F(SubprocessTest, TellsHowItEnded) {
  EXPECT_EQ(RunCommand(Shell("exit 3"), signals_),
            absl::UnknownError("exited with code 3"));
  EXPECT_EQ(RunCommand(Shell("kill -9 $$"), signals_),
            absl::UnknownError("was killed by signal 9 (Killed)"));
}

TEST_F(SubprocessTest, InputIsEmpty) {
  EXPECT_TRUE(RunCommand(Shell("cat"), signals_).ok());
}

TEST_F(SubprocessTest, WhatCannotBeExecutedIsNamed) {
  Command command = Shell("");
  command.arguments = {"/no/such/binary"};
  EXPECT_EQ(RunCommand(command, signals_).message(), "exited with code 127");
  EXPECT_THAT(Log(), HasSubstr("cannot execute /no/such/binary: No such file"));
}

TEST_F(SubprocessTest, AnUnwritableLogIsNamed) {
  Command command = Shell("true");
  command.output_path = "/no/such/folder/log";
  EXPECT_THAT(std::string(RunCommand(command, signals_).message()),
              HasSubstr("opening the log /no/such/folder/log"));
}

TEST_F(SubprocessTest, TheTimeoutEndsIt) {
  Command command = Shell("sleep 600");
  command.timeout = absl::Milliseconds(100);
  EXPECT_EQ(RunCommand(command, signals_),
            absl::DeadlineExceededError(
                "did not end within 100ms and was ended (--run_timeout)"));
}

TEST_F(SubprocessTest, WhatIgnoresTheEndIsKilled) {
  Command command = Shell("trap '' TERM; while true; do sleep 600; done");
  command.timeout = absl::Milliseconds(200);
  command.grace = absl::Milliseconds(200);
  EXPECT_TRUE(absl::IsDeadlineExceeded(RunCommand(command, signals_)));
}

TEST_F(SubprocessTest, ASignalToUsEndsIt) {
  // The command sends the Ctrl-C to this process.
  EXPECT_EQ(signals_.interrupted_by(), 0);
  EXPECT_EQ(RunCommand(Shell("kill -INT $PPID; sleep 600"), signals_),
            absl::CancelledError("was interrupted"));
  EXPECT_EQ(signals_.interrupted_by(), SIGINT);
}

TEST_F(CommandTest, AnIgnoredSignalToUsDoesNot) {
  ::signal(SIGHUP, SIG_IGN);
  {
    HeldSignals signals;
    EXPECT_EQ(RunCommand(Shell("kill -HUP $PPID; sleep 0.1; exit 3"), signals),
              absl::UnknownError("exited with code 3"));
  }
  ::signal(SIGHUP, SIG_DFL);
}

TEST_F(SubprocessTest, ABrokenPipeEndsItAlthoughThisProcessIgnoresSigpipe) {
  IgnoreSigpipe();
  EXPECT_EQ(RunCommand(Shell("kill -PIPE $$; exit 3"), signals_),
            absl::UnknownError("was killed by signal 13 (Broken pipe)"));
}

TEST_F(CommandTest, ItsEndIsSeenEvenIfSigchldWasIgnored) {
  ::signal(SIGCHLD, SIG_IGN);
  HeldSignals signals;
  Command command = Shell("exit 3");
  command.timeout = command.grace = absl::Seconds(5);
  EXPECT_EQ(RunCommand(command, signals),
            absl::UnknownError("exited with code 3"));
}

TEST_F(SubprocessTest, NothingOfItIsLeftRunning) {
  EXPECT_TRUE(RunCommand(Shell("sleep 600 & echo $!"), signals_).ok());
  const pid_t left = std::stoi(Log());
  // Killed; it disappears when init reaps it.
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

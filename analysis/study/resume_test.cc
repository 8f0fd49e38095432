// Tests interrupting and resuming a study, and describing it by a file.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "analysis/study/study_fixture_for_test.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Returns the pid after "hanging as process " in any log, once there is one.
pid_t WaitForHangingTrainer(const fs::path& logs) {
  for (int i = 0; i < 3000; ++i) {
    absl::SleepFor(absl::Milliseconds(10));
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(logs, error)) {
      std::stringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      const std::vector<std::string> parts =
          absl::StrSplit(text.str(), "hanging as process ");
      if (parts.size() == 2 && parts[1].find('\n') != std::string::npos) {
        return std::stoi(parts[1]);
      }
    }
  }
  return 0;
}

class ResumeTest : public StudyTest {
 protected:
  // Starts a study whose third run hangs, and then sends `signal` to it.
  Outcome Interrupted(const std::string& flags, int signal) {
    const std::string command =
        CommandLine(absl::StrCat(flags, " --model=hangs >output"));
    const pid_t study = fork();
    if (study == 0) {
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    trainer_ = WaitForHangingTrainer(root() / "out/logs");
    EXPECT_GT(trainer_, 0);
    kill(study, signal);
    int status = 0;
    waitpid(study, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, ReadFile("output")};
  }

  pid_t trainer_ = 0;
};

TEST_F(ResumeTest, CtrlCEndsTheTrainerAndKeepsWhatIsDone) {
  const Outcome outcome = Interrupted("--repetitions=2", SIGINT);
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_EQ(kill(trainer_, 0), -1);
  EXPECT_THAT(outcome.output,
              HasSubstr("Interrupted: the running trainer was ended; 2 of 8 "
                        "runs are complete and kept."));
  EXPECT_THAT(outcome.output,
              HasSubstr(absl::StrCat(
                  "\nGo on with: ./bazelw run //:study -- --output_dir=",
                  (root() / "out").string(), " --resume\n")));
  EXPECT_EQ(CountRecords(".jsonl"), 2);
  EXPECT_EQ(CountRecords(".incomplete"), 1);
}

// Returns the write times of the folder's runs by name.
std::map<std::string, fs::file_time_type> WriteTimes(const fs::path& dir) {
  std::map<std::string, fs::file_time_type> times;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().extension() != ".jsonl") continue;
    times[entry.path().filename()] = fs::last_write_time(entry.path());
  }
  return times;
}

TEST_F(ResumeTest, FinishesWithTheRunsThatAreMissing) {
  Interrupted("--repetitions=2", SIGINT);
  const auto before = WriteTimes(root() / "out");
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("Kept: 2 of 8 runs are complete"));
  EXPECT_THAT(resumed.output,
              AllOf(HasSubstr("[ 6/6] "), Not(HasSubstr("[ 7/"))));
  const auto after = WriteTimes(root() / "out");
  EXPECT_EQ(after.size(), 8u);
  for (const auto& [name, time] : before) EXPECT_EQ(after.at(name), time);
  EXPECT_EQ(CountRecords(".incomplete"), 0);
  // Another resume has nothing to do and prints the same answer.
  const Outcome again = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output,
              AllOf(HasSubstr("Kept: 8 of 8"), HasSubstr("Base case: single")));
}

TEST_F(ResumeTest, AStudyOfLayoutsGoesOnToo) {
  const Outcome outcome = BareStudy(
      "--threads=1 --oversubscribe --output_dir=out --ablations=0 "
      "--comm_bench=false --repetitions=2 --layouts=ddp,tp2,pp2 "
      "--schedules=1f1b --scaling=strong --model=good");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(
      outcome.output,
      AllOf(HasSubstr("\nWhich layout to use\n  On 2 ranks, with the same "
                      "global batch of 64 (strong scaling), "),
            HasSubstr("\ntensor_parallel "), HasSubstr("\npipeline 1f1b ")));
  EXPECT_EQ(CountRecords(".jsonl"), 10);
  fs::remove(root() / "out/tensor_parallel-x2-batch64-rep1.jsonl");
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("Kept: 9 of 10 runs"));
  EXPECT_EQ(CountRecords(".jsonl"), 10);
}

TEST_F(ResumeTest, AKilledStudyGoesOnToo) {
  Interrupted("--repetitions=2", SIGKILL);
  EXPECT_EQ(CountRecords(".jsonl"), 2);
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("Kept: 2 of 8 runs"));
  EXPECT_EQ(CountRecords(".jsonl"), 8);
}

TEST_F(ResumeTest, OneStudyAtATimeInAFolder) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const auto before = WriteTimes(root() / "out");
  const int folder = open((root() / "out").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  const Outcome second = BareStudy("--output_dir=out --resume");
  close(folder);
  EXPECT_EQ(second.exit_code, 2);
  EXPECT_THAT(second.output, HasSubstr("another study is running in this"));
  EXPECT_EQ(WriteTimes(root() / "out"), before);
  EXPECT_EQ(BareStudy("--output_dir=out --resume").exit_code, 0);
}

TEST_F(ResumeTest, AHalfWrittenRecordIsSetAside) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const std::string whole = ReadFile("out/single-x1-batch64-rep1.jsonl");
  WriteFile("out/single-x1-batch64-rep1.jsonl",
            whole.substr(0, whole.size() / 2));
  EXPECT_THAT(BareStudy("--output_dir=out --resume --dry_run").output,
              HasSubstr("3 of 4 runs are complete already."));
  EXPECT_EQ(CountRecords(".jsonl"), 4);  // a dry run changes nothing
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_THAT(resumed.output, AllOf(HasSubstr("Kept: 3 of 4 runs"),
                                    HasSubstr("[ 1/1] single x1")));
  EXPECT_EQ(CountRecords(".jsonl"), 4);
}

TEST_F(ResumeTest, AFailedRunIsTriedAgain) {
  const Outcome first = Study("--repetitions=2 --model=once");
  EXPECT_EQ(first.exit_code, 1);
  EXPECT_THAT(first.output, HasSubstr("Go on with: "));
  const Outcome resumed = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(resumed.exit_code, 0) << resumed.output;
  EXPECT_EQ(CountRecords(".jsonl"), 8);
}

TEST_F(ResumeTest, AnotherConfigurationIsRefused) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const Outcome other =
      BareStudy("--output_dir=out --resume --max_steps=30 --seed=4");
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.output,
              HasSubstr("study: --resume: this is another study than the one "
                        "in the folder: --max_steps is 30, and was 60; --seed "
                        "is 4, and was 0"));
  EXPECT_EQ(BareStudy("--output_dir=out --resume --max_steps=60").exit_code, 0);
}

TEST_F(ResumeTest, AnotherVersionOfTheCodeNeedsForce) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const std::string other =
      absl::StrReplaceAll(ReadFile("out/study.flags"),
                          {{"# schema_version: 1.", "# schema_version: 1.9"}});
  WriteFile("out/study.flags", other);
  const Outcome refused = BareStudy("--output_dir=out --resume");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output, HasSubstr("pass --force to mix the two"));
  EXPECT_EQ(BareStudy("--output_dir=out --resume --force").exit_code, 0);
}

TEST_F(ResumeTest, AStudyIsRepeatedFromItsOwnDescription) {
  EXPECT_EQ(Study("--repetitions=3 --world_sizes=2").exit_code, 0);
  const Outcome again =
      BareStudy("--flagfile=out/study.flags --output_dir=again");
  EXPECT_EQ(again.exit_code, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("single, ddp at world sizes 2: 9 runs"));
  EXPECT_EQ(ReadFile("again/study.flags"), ReadFile("out/study.flags"));
}

TEST_F(ResumeTest, TheCommandLineWinsOverTheFileBeforeIt) {
  WriteFile("my.flags",
            "# odd\n--repetitions=3\n--seed=5\n"
            "--trainers=single\n");
  const Outcome outcome = BareStudy(
      "--flagfile=my.flags --repetitions=5 --threads=1 --oversubscribe "
      "--output_dir=out");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("5 runs of 60 steps"));
  EXPECT_THAT(ReadFile("out/study.flags"), HasSubstr("\n--seed=5\n"));
}

TEST_F(ResumeTest, AWrongFileSaysWhere) {
  WriteFile("my.flags", "--repetitons=3\n");
  const Outcome unknown = BareStudy("--flagfile=my.flags");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.output,
              HasSubstr("Unknown command line flag 'repetitons'"));
  WriteFile("my.flags", "--repetitions=99999999999999999999\n");
  EXPECT_THAT(BareStudy("--flagfile=my.flags").output,
              HasSubstr("for flag 'repetitions'"));
}

TEST_F(ResumeTest, TheExampleDescribesAStudy) {
  const fs::path example =
      fs::current_path() / "analysis/study/examples/data_parallel.flags";
  const Outcome outcome = BareStudy(absl::StrCat(
      "--flagfile=", example.string(), " --dry_run --oversubscribe"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("\nddp "), HasSubstr(" 7 "),
                                    Not(HasSubstr("pipeline"))));
}

TEST_F(ResumeTest, FoldersWithoutADescriptionAreRead) {
  EXPECT_EQ(Study("--repetitions=2").exit_code, 0);
  const std::string with = BareStudy("--from=out").output;
  fs::remove(root() / "out/study.flags");
  fs::remove(root() / "out/durations.csv");
  const Outcome without = BareStudy("--from=out");
  EXPECT_EQ(without.exit_code, 0) << without.output;
  EXPECT_THAT(without.output, HasSubstr("Base case: single"));
}

TEST_F(ResumeTest, FlagsThatAreNoMoreAreReadWhereTheySaidNothing) {
  EXPECT_EQ(Study("--repetitions=2").exit_code, 0);
  const std::string flags = ReadFile("out/study.flags");
  WriteFile("out/study.flags", flags + "--no_more=\n");
  EXPECT_EQ(BareStudy("--from=out").exit_code, 0);
  WriteFile("out/study.flags", flags + "--no_more=tp2\n");
  const Outcome refused = BareStudy("--from=out");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.output,
              HasSubstr("--no_more=tp2: there is no such flag"));
}

TEST_F(ResumeTest, TheFolderKnowsItsWarmUp) {
  EXPECT_EQ(Study("--repetitions=2 --warmup_steps=20").exit_code, 0);
  EXPECT_THAT(BareStudy("--from=out").output,
              HasSubstr("Runs have 40 steps after warm-up"));
  EXPECT_THAT(BareStudy("--from=out --warmup_steps=30").output,
              HasSubstr("Runs have 30 steps after warm-up"));
}

}  // namespace
}  // namespace rankwise

// The study from its command line to its exit code, with trainers that only
// write records (fake_trainer.cc).

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace rankwise {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

class StudyTest : public testing::Test {
 protected:
  StudyTest()
      : root_(fs::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(root_);
    fs::create_directories(root_ / "trainers");
    const fs::path fake = fs::current_path() / "analysis/study/fake_trainer";
    for (const char* name : {"single", "ddp", "model_parallel", "pipeline"}) {
      fs::create_symlink(fake, root_ / "trainers" / name);
    }
  }

  // The study's command line, started in root_; 2 threads per rank would ask
  // for more cores than a small machine has. The last of a flag counts.
  std::string CommandLine(const std::string& flags) {
    return absl::StrCat(
        "cd ", root_.string(), " && exec ",
        (fs::current_path() / "analysis/study/study_for_test").string(),
        " --trainer_dir=trainers --threads=1 --oversubscribe --output_dir=out "
        "--trainers=single,ddp ",
        flags, " 2>&1");
  }
  Outcome Study(const std::string& flags) {
    Outcome outcome;
    FILE* pipe = popen(CommandLine(flags).c_str(), "r");
    char chunk[4096];
    while (const size_t n = fread(chunk, 1, sizeof(chunk), pipe)) {
      outcome.output.append(chunk, n);
    }
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }
  int CountRecords(const std::string& extension) {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(root_ / "out")) {
      count += entry.path().extension() == extension;
    }
    return count;
  }

  const fs::path root_;
};

TEST_F(StudyTest, PrintsTheTableOfWhatItRan) {
  const Outcome outcome = Study("--repetitions=2");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("8 runs of 60 steps, 1 thread per rank"));
  EXPECT_THAT(outcome.output, HasSubstr("[ 8/8] "));
  EXPECT_THAT(outcome.output,
              HasSubstr("Base case: single on 1 rank, 1 thread"));
  // 1 ms per example, 25 % more on 2 ranks.
  EXPECT_THAT(outcome.output,
              HasSubstr("Strong scaling: ddp on 2 ranks, with the same global "
                        "batch of 64, trains 1.60 times as fast"));
  EXPECT_THAT(outcome.output, HasSubstr("80.0 % efficiency"));
  EXPECT_THAT(outcome.output, HasSubstr("8.0 % of the ranks' time is exposed"));
  EXPECT_EQ(CountRecords(".jsonl"), 8);
}

constexpr char kAllTrainers[] =
    " --trainers=single,ddp,model_parallel,pipeline ";

TEST_F(StudyTest, RunsEveryScheduleOfThePipeline) {
  const Outcome outcome =
      Study(absl::StrCat("--repetitions=2 --model=good", kAllTrainers));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("18 runs of 60 steps"));
  EXPECT_THAT(outcome.output,
              HasSubstr("] pipeline 1f1b x2, 4 micro-batches of 16, run 2: 800 "
                        "images/s"));
  // 64 examples in 80 ms, against 64 ms of single.
  for (const char* row :
       {"\nmodel_parallel             strong ", "\npipeline gpipe ",
        "\npipeline 1f1b              strong       2          32     2       "
        "800     0.80      40.0 %",
        "\npipeline interleaved_1f1b  strong ",
        "\npipeline zero_bubble_h1    strong "}) {
    EXPECT_THAT(outcome.output, HasSubstr(row));
  }
  EXPECT_THAT(
      outcome.output,
      HasSubstr("\npipeline 1f1b                  2         4 x 16       50.0 "
                "%     50.0 %       50.0 %     50.0 %        80.00      80.00  "
                "+0.0 %\n"));
  EXPECT_THAT(outcome.output,
              HasSubstr("\npipeline 1f1b                  2       50.0 50.0 "));
  EXPECT_THAT(outcome.output,
              HasSubstr("\nmodel_parallel                 2         1 x 64 "));
  EXPECT_EQ(CountRecords(".jsonl"), 18);
}

TEST_F(StudyTest, PipelinesScaleWeaklyWhereAskedTo) {
  const Outcome outcome = Study(
      "--repetitions=2 --trainers=single,pipeline --schedules=gpipe "
      "--pipeline_scaling=weak --model=good");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  // 128 examples in 160 ms.
  EXPECT_THAT(
      outcome.output,
      HasSubstr("\npipeline gpipe  weak         2          64     2     "
                "  800     0.80      40.0 %"));
  EXPECT_THAT(outcome.output, HasSubstr("        8 x 16 "));
}

TEST_F(StudyTest, CutsThatTheModelDoesNotHaveAreNotRun) {
  const Outcome outcome =
      Study(absl::StrCat("--repetitions=1 --dry_run --world_sizes=1,4 "
                         "--schedules=1f1b,interleaved_1f1b",
                         kAllTrainers));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("--schedule=1f1b"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("--schedule=interleaved_1f1b")));
  EXPECT_THAT(
      outcome.output,
      HasSubstr("Not run: pipeline interleaved_1f1b x4: the model would be cut "
                "into 8 stages, and simple_cnn has 4 layers.\n"));
  const Outcome none = Study(
      "--trainers=pipeline --schedules=1f1b --world_sizes=8 --batch_size=64");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.output, HasSubstr("study: nothing to run: pipeline 1f1b x8: "
                                     "the model would be cut into 8 stages"));
}

TEST_F(StudyTest, WhatWasNotRunIsSaidUnderTheTable) {
  const Outcome outcome = Study(
      "--repetitions=1 --world_sizes=2 --trainers=single,model_parallel "
      "--model=linear");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output,
              HasSubstr("\nNot run: model_parallel x2: the model would be cut "
                        "into 2 stages, and linear has 1 layer.\n"));
}

TEST_F(StudyTest, PrintsTheSameTableFromTheRecords) {
  const std::string first =
      Study(absl::StrCat("--repetitions=2", kAllTrainers)).output;
  const Outcome again = Study("--from=out");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.output, HasSubstr("\npipeline zero_bubble_h1"));
  EXPECT_THAT(first, HasSubstr(again.output));
}

TEST_F(StudyTest, AFailedCellCostsOnlyItself) {
  const Outcome outcome = Study("--repetitions=2 --model=crashes");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_THAT(outcome.output, HasSubstr("skipped, as this configuration"));
  EXPECT_THAT(outcome.output, HasSubstr("\nFailed: ddp x2, batch 32 per rank"));
  EXPECT_THAT(outcome.output, HasSubstr("\nddp      both"));
  EXPECT_EQ(CountRecords(".jsonl"), 4);
  EXPECT_EQ(CountRecords(".incomplete"), 2);
}

TEST_F(StudyTest, AFailedRunShowsItsLastLines) {
  const Outcome outcome = Study("--repetitions=1 --model=bad");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("exited with code 3\n"));
  EXPECT_THAT(outcome.output, HasSubstr("\nsingle: a reason to fail\n"));
}

TEST_F(StudyTest, ARunThatEndsEarlyFails) {
  const Outcome outcome = Study("--repetitions=1 --model=stops");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("3 steps leave 0 after 10 of warm-up"));
}

TEST_F(StudyTest, ARunThatHangsIsEnded) {
  const Outcome outcome =
      Study("--repetitions=1 --model=hangs --run_timeout=1s");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("(--run_timeout)"));
  EXPECT_THAT(outcome.output, HasSubstr("hanging as process"));
}

// The text after "hanging as process " in any log, once there is one.
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

TEST_F(StudyTest, CtrlCEndsTheTrainerAndKeepsWhatIsDone) {
  const std::string output = (root_ / "output").string();
  const std::string command =
      CommandLine("--repetitions=2 --model=hangs >" + output);
  const pid_t study = fork();
  if (study == 0) {
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  const pid_t trainer = WaitForHangingTrainer(root_ / "out/logs");
  ASSERT_GT(trainer, 0);
  kill(study, SIGINT);
  int status = 0;
  waitpid(study, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(kill(trainer, 0), -1);
  std::stringstream text;
  text << std::ifstream(output).rdbuf();
  EXPECT_THAT(text.str(),
              HasSubstr("Interrupted: the running trainer was ended; 2 of 8 "
                        "runs are complete and kept."));
  EXPECT_EQ(CountRecords(".jsonl"), 2);
  EXPECT_EQ(CountRecords(".incomplete"), 1);
}

TEST_F(StudyTest, DryRunPrintsTheCommandsOnly) {
  const Outcome outcome = Study("--repetitions=1 --dry_run");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("trainers/ddp --record="), HasSubstr("--nproc=2"),
                    HasSubstr("ddp-x2-batch32-rep1.jsonl")));
  EXPECT_FALSE(fs::exists(root_ / "out"));
}

TEST_F(StudyTest, TheSameFolderTwiceIsRefused) {
  EXPECT_EQ(Study("--repetitions=1").exit_code, 0);
  const Outcome again = Study("--repetitions=1");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("out: holds records already"));
}

TEST_F(StudyTest, BadCommandLinesSayWhatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--world_sizes=0", "\"0\" is not a world size"},
      {"--world_sizes=2,x", "\"x\" is not a world size"},
      {"--repetitions=0", "--repetitions=0: expected 1 or more"},
      {"--repetitions=two", "Illegal value 'two' specified for flag"},
      {"--trainers=fsdp", "\"fsdp\" is unknown; expected some of single"},
      {"--schedules=2f2b", "\"2f2b\" is unknown; expected some of naive"},
      {"--pipeline_scaling=both",
       "--pipeline_scaling=both: \"both\" is unknown"},
      {"--trainers=pipeline --microbatches=5",
       "divides it into --microbatches=5, and it does not divide"},
      {"--scaling=both", "\"both\" is unknown; expected strong, weak"},
      {"--max_steps=5", "--max_steps=5: expected 15 or more"},
      {"--batch_size=33", "does not divide by the world size 2"},
      {"--run_timeout=0s", "--run_timeout: expected a time above 0"},
      {"--trainer_dir=nowhere", "nowhere/single is not an executable file"},
      {"--output_dir=/proc/study", "/proc/study: cannot write there"},
      {"--trainer_flags=fast", "\"fast\" is no flag"},
      {"--from=nowhere", "nowhere: no such folder"},
      {"--from=trainers", "trainers: holds no *.jsonl"},
      {"--from=trainers --warmup_steps=-1", "--warmup_steps: expected 0"},
      {"--unknown=1", "Unknown command line flag 'unknown'"},
      {"1,2", "unexpected argument \"1,2\""},
  };
  for (const auto& [flags, message] : cases) {
    const Outcome outcome = Study(flags);
    EXPECT_NE(outcome.exit_code, 0) << flags;
    EXPECT_THAT(outcome.output, HasSubstr(message)) << flags;
    EXPECT_THAT(outcome.output, Not(HasSubstr("terminate called"))) << flags;
  }
}

}  // namespace
}  // namespace rankwise

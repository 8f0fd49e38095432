// Tests unwritable output of all binaries: each must fail with exit code 1 and
// one line on stderr, for a full disk and for a closed output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "analysis/runs/made_study_for_test.h"
#include "parallel/comm/test_process.h"
#include "records/command_line.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Returns a folder with the records of a synthetic study.
const std::string& Records() {
  static const auto* folder = [] {
    auto* made = new std::string(TemporaryPath("records"));
    std::filesystem::create_directory(*made);
    EXPECT_TRUE(WriteMadeStudy(*made, {.records = 2'000}).ok());
    return made;
  }();
  return *folder;
}

// Runs `command`, with Records() in place of RECORDS, with a shell's
// `redirection`.
void ExpectFailure(const std::string& command, const std::string& redirection,
                   const std::string& reason) {
  std::vector<std::string> argv = absl::StrSplit(
      absl::StrReplaceAll(command, {{"RECORDS", Records()}}), ' ');
  argv[0] = Runfile(argv[0]);
  argv.insert(argv.begin(), {"/bin/sh", "-c",
                             absl::StrCat("exec \"$0\" \"$@\" ", redirection)});
  TestProcess run(argv, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.Wait(), kFailed);
  const std::string printed = run.Stderr();
  EXPECT_THAT(printed,
              HasSubstr(absl::StrCat(
                  "the standard output could not be written: ", reason)));
  EXPECT_THAT(std::vector<std::string>(
                  absl::StrSplit(printed, '\n', absl::SkipWhitespace())),
              SizeIs(1))
      << printed;
}

class LostOutputTest : public ::testing::TestWithParam<std::string> {};

TEST_P(LostOutputTest, FailsOnAFullDisk) {
  ExpectFailure(GetParam(), ">/dev/full", "No space left on device");
}

TEST_P(LostOutputTest, FailsWhenClosed) {
  ExpectFailure(GetParam(), ">&-", "Bad file descriptor");
}

constexpr char kTrained[] = " --model=mlp --max_steps=2 --peak=none";

INSTANTIATE_TEST_SUITE_P(
    Binaries, LostOutputTest,
    ::testing::Values(
        "analysis/compare/compare --help",
        "analysis/cost_model/fit_network --help",
        "analysis/plan/plan --model=nano --cluster=a100-selene --world_sizes=2",
        "analysis/prediction/predict --help", "analysis/runs/make_study --help",
        "analysis/study/study --from=RECORDS --report=false",
        "comm_bench/comm_bench --list",
        "comm_bench/comm_bench --nproc=2 --sizes=8 --iterations=5",
        "comm_bench/cuda/micro --help", "comm_bench/ladder --help",
        "comm_bench/new_group --help", "comm_bench/overlap --help",
        "comm_bench/pairs --help", "comm_bench/replay --help",
        "comm_bench/units --help", "analysis/history/history --help",
        "parallel/pipeline/show --pp=2 --microbatches=2",
        "samplers/show --size=10", "tests/fuzz/fuzz --help",
        "tests/faults/kill_campaign --help", "tests/parity/parity --help",
        "trainers/data_parallel --help", "trainers/ddp --version",
        absl::StrCat("trainers/ddp --nproc=2", kTrained),
        "trainers/fsdp --help", "trainers/fsdp --nproc=2 --dry_run",
        "trainers/hybrid --help", "trainers/model_parallel --help",
        "trainers/parameter_server --help", "trainers/pipeline --help",
        absl::StrCat("trainers/single", kTrained),
        "trainers/tensor_parallel --help"),
    [](const auto& info) {
      std::string name = info.param;
      for (char& c : name) {
        if (!absl::ascii_isalnum(c)) c = '_';
      }
      return name;
    });

// A file opened later must not get the descriptor of a closed stream.
TEST(ClosedStreamsTest, LeaveFilesAlone) {
  const std::string file = TemporaryPath("closed.jsonl");
  TestProcess run({"/bin/sh", "-c",
                   absl::StrCat("exec \"$0\"", kTrained, " --record=", file,
                                " <&- >&- 2>&-"),
                   Runfile("trainers/single")});
  EXPECT_EQ(run.Wait(), kFailed);
  TestProcess read({"/bin/sh", "-c", absl::StrCat("grep -vc '^{' ", file)});
  read.Wait();
  EXPECT_EQ(read.Stdout(), "0\n");
}

}  // namespace
}  // namespace rankwise

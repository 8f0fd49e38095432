// Tests that all programs exit with the codes of docs/exit_codes.md.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "analysis/runs/trace_for_test.h"
#include "parallel/comm/test_process.h"
#include "records/command_line.h"
#include "records/record_writer.h"

namespace rankwise {
namespace {

// Paths of unusable input.
struct Inputs {
  std::string missing = TemporaryPath("missing");  // does not exist
  std::string empty = TemporaryPath("empty");      // an empty folder
  // a folder with a malformed line
  std::string broken = TemporaryPath("broken");
  // a folder with a run without steps
  std::string silent = TemporaryPath("silent");
};

const Inputs& MadeInputs() {
  static const auto* inputs = [] {
    auto* made = new Inputs;
    for (const std::string* folder :
         {&made->empty, &made->broken, &made->silent})
      std::filesystem::create_directory(*folder);
    const Record run = MakeRun({}).ranks[0].run;
    for (const std::string* folder : {&made->broken, &made->silent}) {
      auto writer = RecordWriter::Open(*folder + "/run.jsonl");
      EXPECT_TRUE(writer.ok() && (*writer)->Write(run).ok());
    }
    std::ofstream(made->broken + "/run.jsonl", std::ios::app)
        << "{\"kind\":\"step\"}\n";
    return made;
  }();
  return *inputs;
}

struct Case {
  // MISSING, EMPTY, ... are replaced by the paths of Inputs
  std::string command;
  int code = 0;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.command; }

const char* const kPrograms[] = {"analysis/compare/compare",
                                 "analysis/cost_model/fit_network",
                                 "analysis/history/history",
                                 "analysis/plan/plan",
                                 "analysis/prediction/predict",
                                 "analysis/runs/make_study",
                                 "analysis/study/study",
                                 "comm_bench/comm_bench",
                                 "comm_bench/cuda/micro",
                                 "comm_bench/ladder",
                                 "comm_bench/new_group",
                                 "comm_bench/overlap",
                                 "comm_bench/pairs",
                                 "comm_bench/replay",
                                 "comm_bench/units",
                                 "parallel/pipeline/show",
                                 "samplers/show",
                                 "tests/faults/kill_campaign",
                                 "tests/parity/parity",
                                 "trainers/data_parallel",
                                 "trainers/ddp",
                                 "trainers/fsdp",
                                 "trainers/hybrid",
                                 "trainers/model_parallel",
                                 "trainers/parameter_server",
                                 "trainers/pipeline",
                                 "trainers/single",
                                 "trainers/tensor_parallel"};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const char* program : kPrograms) {
    cases.push_back({absl::StrCat(program, " --help"), 0});
    cases.push_back({absl::StrCat(program, " --nosuch_flag"), kBadUsage});
  }
  for (const char* reader : {"analysis/cost_model/fit_network --records=",
                             "analysis/plan/plan --model=nano --records=",
                             "analysis/plan/plan --score --records=",
                             "analysis/prediction/predict --records=",
                             "analysis/study/study --report=false --from="}) {
    for (const char* unreadable : {"MISSING", "EMPTY", "BROKEN"})
      cases.push_back({absl::StrCat(reader, unreadable), kBadUsage});
    cases.push_back({absl::StrCat(reader, "SILENT"), kInconclusive});
  }
  for (const char* unreadable : {"MISSING", "EMPTY", "BROKEN"}) {
    cases.push_back(
        {absl::StrCat("analysis/history/history ", unreadable), kBadUsage});
    cases.push_back(
        {absl::StrCat("analysis/compare/compare MISSING/before ", unreadable),
         kBadUsage});
  }
  const std::string replay = "comm_bench/replay --replay=";
  const std::string show = "parallel/pipeline/show --schedule=";
  const std::string cifar = " --dataset=cifar10 --data_dir=";
  for (const std::string& command : std::vector<std::string>{
           replay + "MISSING", replay + "BROKEN/run.jsonl", show + "MISSING",
           show + "BROKEN/run.jsonl",
           "trainers/single --dataset=text --model=gpt --data_dir=MISSING",
           "trainers/single --model=gpt --data_dir=MISSING",
           "trainers/single --model=gpt --data_dir=EMPTY",
           "trainers/single" + cifar + "MISSING",
           "trainers/single" + cifar + "EMPTY",
           "trainers/ddp --nproc=2" + cifar + "EMPTY"})
    cases.push_back({command, kBadUsage});
  // Output that cannot be written is a failure.
  cases.push_back({"parallel/pipeline/show --csv=MISSING/file", kFailed});
  return cases;
}

class ExitCodesTest : public ::testing::TestWithParam<Case> {};

TEST_P(ExitCodesTest, AreThoseOfTheTable) {
  const Inputs& inputs = MadeInputs();
  std::vector<std::string> argv = absl::StrSplit(
      absl::StrReplaceAll(GetParam().command, {{"MISSING", inputs.missing},
                                               {"EMPTY", inputs.empty},
                                               {"BROKEN", inputs.broken},
                                               {"SILENT", inputs.silent}}),
      ' ');
  argv[0] = Runfile(argv[0]);
  TestProcess run(argv, {"CUDA_VISIBLE_DEVICES="});
  EXPECT_EQ(run.Wait(), GetParam().code) << run.Stderr();
}

INSTANTIATE_TEST_SUITE_P(Table, ExitCodesTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) {
                           std::string name = info.param.command;
                           for (char& c : name) {
                             if (!absl::ascii_isalnum(c)) c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace rankwise

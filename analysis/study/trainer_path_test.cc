#include "analysis/study/trainer_path.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

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

}  // namespace
}  // namespace rankwise

// Tests a minimal study with the real trainers, from the command line to the
// table and the records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

#include "parallel/comm/test_process.h"
#include "tests/trainer/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Runs a study with a folder for its records, and returns its output. All of
// its runs are comparable.
std::string RunStudy(const Flags& flags, const std::string& dir) {
  TestProcess study(Joined(
      {Runfile("analysis/study/study")},
      Joined(flags,
             {"--repetitions=2", "--max_steps=9", "--warmup_steps=3",
              "--batch_size=16", "--threads=1", "--output_dir=" + dir})));
  EXPECT_EQ(study.Wait(absl::Seconds(250)), 0)
      << study.Stdout() << study.Stderr();
  EXPECT_THAT(study.Stdout(), Not(HasSubstr("No efficiency: ")));
  EXPECT_THAT(study.Stdout(), Not(HasSubstr("Left out: ")));
  return study.Stdout();
}

TEST(StudyTest, EveryTrainerOnOneAndTwoRanks) {
  const std::string dir = TemporaryPath("study");
  const std::string printed = RunStudy({"--ablations=1"}, dir);
  EXPECT_THAT(printed, HasSubstr("efficiency"));
  for (const char* row :
       {"\nsingle ", "\nddp ", "\nmodel_parallel ", "\npipeline gpipe ",
        "\npipeline 1f1b ", "\npipeline interleaved_1f1b ",
        "\npipeline zero_bubble_h1 ", "  idle % by rank  "}) {
    EXPECT_THAT(printed, HasSubstr(row));
  }
  for (const char* answer : {"\nHow well it scales\n", "\nWhat costs most\n",
                             "\nHow far to trust this\n", "explain all but",
                             "Predicted from 1 rank"}) {
    EXPECT_THAT(printed, HasSubstr(answer));
  }
  EXPECT_GT(std::filesystem::file_size(dir + "/report.html"), 1000000u);
  std::map<std::string, int> on_two_ranks, without_communication;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() != ".jsonl") continue;
    for (const RunRecord& run : RecordsOf<RunRecord>(file.path().string())) {
      if (run.world_size != 2 || run.rank != 0) continue;
      const auto skip = run.flags.find("skip_communication");
      const bool without = skip != run.flags.end() && skip->second == "true";
      ++(without ? without_communication : on_two_ranks)[run.binary];
    }
  }
  // Twice each: comm_bench, ddp under strong and weak scaling, model_parallel,
  // 4 schedules.
  EXPECT_THAT(on_two_ranks,
              ElementsAre(Pair("comm_bench", 2), Pair("ddp", 4),
                          Pair("model_parallel", 2), Pair("pipeline", 8)));
  EXPECT_THAT(without_communication,
              ElementsAre(Pair("ddp", 2), Pair("model_parallel", 1),
                          Pair("pipeline", 1)));
}

TEST(StudyTest, ReplicasOfOneProcessAreItsRanks) {
  const std::string printed =
      RunStudy({"--trainers=single,data_parallel", "--world_sizes=2",
                "--ablations=0", "--device=cpu"},
               TemporaryPath("study"));
  for (const char* row :
       {"\ndata_parallel  strong       2           8 ",
        "\ndata_parallel  weak         2          16 ",
        "What the first device does in a step while the other replicas wait"}) {
    EXPECT_THAT(printed, HasSubstr(row));
  }
}

TEST(StudyTest, LayersOverTwoRanks) {
  const std::string printed =
      RunStudy({"--trainers=single,tensor_parallel,hybrid", "--model=mlp",
                "--world_sizes=2", "--scaling=strong", "--ablations=0",
                "--comm_bench=false"},
               TemporaryPath("study"));
  for (const char* row : {"\ntensor_parallel  strong ", "\nhybrid tp2 ",
                          "along each axis of the mesh"}) {
    EXPECT_THAT(printed, HasSubstr(row));
  }
}

}  // namespace
}  // namespace rankwise

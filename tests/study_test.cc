// The main job with the real trainers, as small as it goes: from the command
// line to the table and the records.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <variant>

#include "parallel/comm/test_process.h"
#include "tests/trainer_process.h"

namespace rankwise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(StudyTest, EveryTrainerOnOneAndTwoRanks) {
  const std::string dir = TemporaryPath("study");
  TestProcess study({Runfile("analysis/study/study"), "--repetitions=2",
                     "--max_steps=9", "--warmup_steps=3", "--batch_size=16",
                     "--threads=1", "--output_dir=" + dir});
  ASSERT_EQ(study.Wait(absl::Seconds(250)), 0)
      << study.Stdout() << study.Stderr();
  EXPECT_THAT(study.Stdout(), HasSubstr("efficiency"));
  for (const char* row :
       {"\nsingle ", "\nddp ", "\nmodel_parallel ", "\npipeline gpipe ",
        "\npipeline 1f1b ", "\npipeline interleaved_1f1b ",
        "\npipeline zero_bubble_h1 ", "  idle % by rank  "}) {
    EXPECT_THAT(study.Stdout(), HasSubstr(row));
  }
  EXPECT_THAT(study.Stdout(), Not(HasSubstr("No efficiency: ")));
  EXPECT_THAT(study.Stdout(), Not(HasSubstr("Left out: ")));
  int64_t runs_on_two_ranks = 0;
  for (const auto& file : std::filesystem::directory_iterator(dir)) {
    if (file.path().extension() != ".jsonl") continue;
    for (const Record& record : RecordsIn(file.path().string())) {
      const auto* run = std::get_if<RunRecord>(&record);
      if (run != nullptr && run->world_size == 2 && run->rank == 0)
        ++runs_on_two_ranks;
    }
  }
  // Twice each: ddp by strong and weak scaling, model_parallel, 4 schedules.
  EXPECT_EQ(runs_on_two_ranks, 14);
}

}  // namespace
}  // namespace rankwise

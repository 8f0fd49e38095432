
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ErrorOf(const std::string& csv) {
  const absl::StatusOr<Schedule> schedule = ParseScheduleCsv("my.csv", csv);
  EXPECT_TRUE(absl::IsInvalidArgument(schedule.status()));
  return std::string(schedule.status().message());
}

TEST(ScheduleCsvTest, AllKindsOfAction) {
  const Schedule schedule =
      *ParseScheduleCsv("my.csv",
                        "0F0,0SEND_F0,0RECV_B0,0B0\n"
                        "1RECV_F0,1F0,1I0,1SEND_B0,1W0\n");
  EXPECT_EQ(schedule.name, "my.csv");
  EXPECT_EQ(schedule.num_micro_batches, 1);
  EXPECT_THAT(schedule.rank_of_stage, ElementsAre(0, 1));
  EXPECT_THAT(schedule.actions[1],
              ElementsAre(Action{1, 0, ActionKind::kRecvForward},
                          Action{1, 0, ActionKind::kForward},
                          Action{1, 0, ActionKind::kInputGrad},
                          Action{1, 0, ActionKind::kSendBackward},
                          Action{1, 0, ActionKind::kWeightGrad}));
}

// torch.distributed.pipelining's idle time slots, with Windows line endings.
TEST(ScheduleCsvTest, EmptyCellsMeanNothing) {
  const Schedule schedule =
      *ParseScheduleCsv("my.csv", "0F0,,, 0B0\r\n,1F0,1B0,\r\n");
  EXPECT_EQ(ToCsv(schedule), "0F0,0B0\n1F0,1B0\n");
}

TEST(ScheduleCsvTest, WhatIsWrittenIsReadAgain) {
  for (const std::string& name : ScheduleNames()) {
    const Schedule schedule = *MakeSchedule(name, {4, 11});
    const std::string path = testing::TempDir() + name + ".csv";
    ASSERT_TRUE(WriteScheduleCsv(schedule, path).ok());
    const absl::StatusOr<Schedule> read = ReadScheduleCsv(path);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->actions, schedule.actions);
    EXPECT_EQ(read->rank_of_stage, schedule.rank_of_stage);
    EXPECT_EQ(read->num_micro_batches, 11);
  }
}

TEST(ScheduleCsvTest, NamesTheCellThatIsNoAction) {
  EXPECT_THAT(ErrorOf("0F0,0B0\n1F0,1X0\n"),
              HasSubstr("my.csv, row 2, column 2: \"1X0\": not an action"));
  EXPECT_THAT(ErrorOf("0F0,,F0\n"), HasSubstr("my.csv, row 1, column 3"));
  for (const std::string cell :
       {"0", "0F", "F", "0f0", "0F-1", "0F1.5", "0SEND_F", "99999999999F0",
        "0F2000000", "0F0F0"}) {
    EXPECT_THAT(ErrorOf(cell), HasSubstr("row 1, column 1"));
  }
}

TEST(ScheduleCsvTest, QuotesLittleAndNoControlBytes) {
  EXPECT_THAT(ErrorOf("0F0,\x1b[2Jx\x07\n"),
              HasSubstr("column 2: \"\\x1b[2Jx\\x07\": not an action"));
  const std::string binary = ErrorOf(std::string(100'000, '\xfe'));
  EXPECT_LT(binary.size(), 500u);
  EXPECT_THAT(binary, HasSubstr("\\xfe...\": not an action"));
}

TEST(ScheduleCsvTest, PairsThatOverlap) {
  const std::string csv = "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
  const Schedule schedule = *ParseScheduleCsv("my.csv", csv);
  EXPECT_THAT(schedule.actions[0],
              ElementsAre(Action{0, 0, ActionKind::kForward},
                          Action{0, 1, ActionKind::kForward},
                          Action{0, 0, ActionKind::kBackward, true},
                          Action{0, 1, ActionKind::kBackward}));
  EXPECT_EQ(ToCsv(schedule), csv);
  for (const std::string cell :
       {"(0F1)OVERLAP_F_B", "(0B0;0F1)OVERLAP_F_B", "(0F1;0I0)OVERLAP_F_B",
        "(0F1;0B0;0B1)OVERLAP_F_B", "0F1;0B0)OVERLAP_F_B", "OVERLAP_F_B"}) {
    EXPECT_THAT(ErrorOf("0F0," + cell), HasSubstr("row 1, column 2")) << cell;
  }
  EXPECT_THAT(ErrorOf("(0B0;0F1)OVERLAP_F_B"),
              HasSubstr("an F and a B that overlap look like (0F3;3B1)"));
}

TEST(ScheduleCsvTest, SaysWhyTorchsOtherActionsAreRefused) {
  EXPECT_THAT(ErrorOf("0UNSHARD\n"), HasSubstr("sharded parameters"));
  EXPECT_THAT(ErrorOf("0REDUCE_GRAD\n"), HasSubstr("sharded parameters"));
}

TEST(ScheduleCsvTest, AStageIsOnOneRank) {
  EXPECT_THAT(
      ErrorOf("0F0,0B0\n0F1\n"),
      HasSubstr("my.csv, row 2, column 1: \"0F1\": row 1 has stage 0 already"));
  EXPECT_THAT(ErrorOf("0F0,0B0\n2F0,2B0\n"),
              HasSubstr("my.csv: no rank has stage 1, although stage 2"));
}

TEST(ScheduleCsvTest, TheFileMayComeFromAnotherSystem) {
  const std::string path = testing::TempDir() + "/other_system.csv";
  std::ofstream(path) << "\xef\xbb\xbf"
                      << "0F0,0B0\r\n1F0,1B0\r\n";
  const absl::StatusOr<Schedule> schedule = ReadScheduleCsv(path);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(schedule->num_ranks(), 2);
}

TEST(ScheduleCsvTest, FilesThatCannotBeUsed) {
  EXPECT_EQ(ErrorOf("\n \n"), "my.csv: the file is empty");
  const absl::Status missing = ReadScheduleCsv("/nowhere/my.csv").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("/nowhere/my.csv"));
  const absl::Status folder = ReadScheduleCsv(testing::TempDir()).status();
  EXPECT_THAT(folder.message(), HasSubstr("is a folder, not a file"));
  const absl::Status unwritable =
      WriteScheduleCsv(*MakeSchedule("naive", {1, 1}), "/nowhere/my.csv");
  EXPECT_THAT(unwritable.message(), AllOf(HasSubstr("writing /nowhere/my.csv"),
                                          HasSubstr("its folder must exist")));
}

}  // namespace
}  // namespace rankwise

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"

namespace rankwise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Schedule Parse(const std::string& csv) {
  return ParseScheduleCsv("test", csv).value();
}

std::string ErrorOf(const Schedule& schedule) {
  const absl::StatusOr<ScheduleFacts> facts = Validate(schedule);
  EXPECT_TRUE(absl::IsInvalidArgument(facts.status()));
  return std::string(facts.status().message());
}

std::string ErrorOf(const std::string& csv) { return ErrorOf(Parse(csv)); }

TEST(ValidateTest, CountsActivations) {
  EXPECT_THAT(Validate(Parse("0F0,0F1,0B0,0F2,0B1,0B2\n"))->peak_activations,
              ElementsAre(2));
  // Activations with an I but no W still count.
  EXPECT_THAT(Validate(Parse("0F0,0I0,0F1,0I1,0F2,0W0,0I2,0W1,0W2\n"))
                  ->peak_activations,
              ElementsAre(3));
  // Summed over two stages.
  EXPECT_THAT(
      Validate(Parse("0F0,1F0,0F1,1F1,1B0,0B0,1B1,0B1\n"))->peak_activations,
      ElementsAre(4));
}

TEST(ValidateTest, Missing) {
  EXPECT_EQ(ErrorOf("0F0,0B0,0F1,0B1\n1F0,1B0,1B1\n"),
            "rank 1: missing action 1F1");
  EXPECT_EQ(ErrorOf("0F0\n"), "rank 0: missing action 0B0");
  EXPECT_EQ(ErrorOf("0F0,0W0\n"), "rank 0: missing action 0I0 (W needs it)");
  EXPECT_EQ(ErrorOf("0F0,0I0\n"),
            "rank 0: missing action 0W0 (the other half of I)");
  EXPECT_EQ(ErrorOf("0F0,0B0\n\n1F0,1B0\n"), "rank 1 has no actions");
  // A table of the size that these numbers imply would not fit into memory.
  EXPECT_EQ(ErrorOf("0F1000000,0B1000000\n"), "rank 0: missing action 0F0");
}

TEST(ValidateTest, Doubled) {
  EXPECT_EQ(
      ErrorOf("0F0,0B0,0F0\n"),
      "rank 0, action 3 (0F0): duplicate: it is this rank's action 1 too");
  EXPECT_EQ(ErrorOf("0F0,0B0,0W0\n"),
            "rank 0, action 3 (0W0): duplicate: 0B0 computes it already");
}

TEST(ValidateTest, UseBeforeDefinition) {
  EXPECT_EQ(ErrorOf("0B0,0F0\n"),
            "rank 0, action 1 (0B0): use before 0F0, which is action 2");
  EXPECT_EQ(ErrorOf("0F0,0W0,0I0\n"),
            "rank 0, action 2 (0W0): use before 0I0, which is action 3");
  // Two stages on one rank.
  EXPECT_EQ(ErrorOf("1F0,0F0,1B0,0B0\n"),
            "rank 0, action 1 (1F0): use before 0F0, which is action 2");
  EXPECT_EQ(ErrorOf("0F0,1F0,0B0,1I0,1W0\n"),
            "rank 0, action 3 (0B0): use before 1I0, which is action 4");
}

TEST(ValidateTest, WhatOverlapsIsAForwardAndAnotherBackward) {
  EXPECT_TRUE(Validate(Parse("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n")).ok());
  EXPECT_EQ(ErrorOf("(0F0;0B0)OVERLAP_F_B\n"),
            "rank 0, action 2 (0B0): overlaps 0F0, which it needs");
  Schedule schedule = Parse("0F0,0F1,0B0,0B1\n");
  schedule.actions[0][3].overlapped = true;
  EXPECT_EQ(ErrorOf(schedule),
            "rank 0, action 4 (0B1): only an F and the B after it overlap");
  schedule.actions[0][3].overlapped = false;
  schedule.actions[0][0].overlapped = true;
  EXPECT_EQ(ErrorOf(schedule),
            "rank 0, action 1 (0F0): only an F and the B after it overlap");
}

TEST(ValidateTest, OutOfRange) {
  Schedule schedule = Parse("0F0,0B0\n1F0,1B0\n");
  schedule.actions[1][0].stage = 2;
  EXPECT_EQ(ErrorOf(schedule),
            "rank 1, action 1 (2F0): there is no such stage among 2 stages");
  schedule.actions[1][0].stage = 0;
  EXPECT_EQ(ErrorOf(schedule), "rank 1, action 1 (0F0): stage 0 is on rank 0");
  schedule.actions[1][0] = {1, 5, ActionKind::kForward};
  EXPECT_EQ(ErrorOf(schedule),
            "rank 1, action 1 (1F5): there is no such micro-batch among 1 "
            "micro-batches");
  schedule.rank_of_stage[1] = 2;
  EXPECT_EQ(ErrorOf(schedule), "stage 1 is on rank 2 of 2 ranks");
  EXPECT_EQ(ErrorOf(Schedule{}), "the schedule is empty");
}

TEST(ValidateTest, ADeadlockIsDescribedAsACircle) {
  EXPECT_EQ(ErrorOf("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"),
            "deadlock, ranks wait for each other in a cycle:\n"
            "  rank 0, action 2 (0B0) waits for 1B0, which is action 3 of "
            "rank 1\n"
            "  rank 1, action 2 (1F1) waits for 0F1, which is action 3 of "
            "rank 0");
}

// Rank 0 waits for ranks 1 and 2, which form the cycle.
TEST(ValidateTest, OnlyTheCircleIsNamed) {
  const std::string error = ErrorOf(
      "0F0,0F1,0B0,0B1\n"
      "1F0,1B0,1F1,1B1\n"
      "2F0,2F1,2B0,2B1\n");
  EXPECT_EQ(error,
            "deadlock, ranks wait for each other in a cycle:\n"
            "  rank 1, action 2 (1B0) waits for 2B0, which is action 3 of "
            "rank 2\n"
            "  rank 2, action 2 (2F1) waits for 1F1, which is action 3 of "
            "rank 1");
}

TEST(ValidateTest, CommunicationIsAccepted) {
  EXPECT_TRUE(Validate(Parse("0F0,0SEND_F0,0RECV_B0,0B0\n"
                             "1RECV_F0,1F0,1B0,1SEND_B0\n"))
                  .ok());
}

TEST(ValidateTest, CommunicationThatIsMissing) {
  EXPECT_EQ(ErrorOf("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n"),
            "rank 1: missing action 1RECV_F0");
  EXPECT_EQ(ErrorOf("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n"),
            "rank 1: missing action 1SEND_B0");
}

TEST(ValidateTest, CommunicationInTheWrongPlace) {
  EXPECT_EQ(ErrorOf("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "rank 0, action 1 (0SEND_F0): use before 0F0, which is action 2");
  EXPECT_EQ(ErrorOf("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n"),
            "rank 1, action 1 (1F0): use before 1RECV_F0, which is action 2");
  EXPECT_THAT(ErrorOf("0F0,0SEND_F0,1F0,1B0,0B0\n"),
              HasSubstr("rank 0, action 2 (0SEND_F0): there is no other rank"));
  EXPECT_THAT(ErrorOf("0RECV_F0,0F0,0B0\n"),
              HasSubstr("(0RECV_F0): there is no other rank"));
}

// Two messages that the sides issue in different orders.
constexpr char kCrossed[] =
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n";

TEST(ValidateTest, TwoRanksMustIssueInTheSameOrder) {
  EXPECT_EQ(ErrorOf(kCrossed),
            "ranks 0 and 1 disagree about the message number 2 between them: "
            "rank 0, action 4 (0SEND_F1) against rank 1, action 4 (1SEND_B0); "
            "both must issue them in the same order");
}

// Two rounds over three ranks; ranks 0 and 1 compute in time but send too late.
// Without the sends the schedule could run.
TEST(ValidateTest, ADeadlockOfCommunication) {
  const Schedule schedule = Parse(
      "0F0,0SEND_F0,0F1,3RECV_F0,3F0,3SEND_F0,0SEND_F1,3RECV_F1,3F1,3SEND_F1,"
      "3RECV_B0,3B0,3SEND_B0,3RECV_B1,3B1,3SEND_B1,0RECV_B0,0B0,0RECV_B1,0B1\n"
      "1RECV_F0,4RECV_F0,1RECV_F1,4RECV_F1,1F0,1F1,1SEND_F0,1SEND_F1,4F0,"
      "4SEND_F0,4F1,4SEND_F1,4RECV_B0,4B0,4SEND_B0,4RECV_B1,4B1,4SEND_B1,"
      "1RECV_B0,1B0,1SEND_B0,1RECV_B1,1B1,1SEND_B1\n"
      "2RECV_F0,2F0,2SEND_F0,2RECV_F1,2F1,2SEND_F1,5RECV_F0,5F0,5RECV_F1,5F1,"
      "5B0,5SEND_B0,5B1,5SEND_B1,2RECV_B0,2B0,2SEND_B0,2RECV_B1,2B1,"
      "2SEND_B1\n");
  EXPECT_TRUE(Validate(ComputationOf(schedule)).ok());
  EXPECT_EQ(ErrorOf(schedule),
            "deadlock, ranks wait for each other in a cycle:\n"
            "  rank 0, action 5 (3F0) waits for 2SEND_F0, which is action 3 of "
            "rank 2\n"
            "  rank 2, action 2 (2F0) waits for 1SEND_F0, which is action 7 of "
            "rank 1\n"
            "  rank 1, action 6 (1F1) waits for 0SEND_F1, which is action 7 of "
            "rank 0");
}

}  // namespace
}  // namespace rankwise

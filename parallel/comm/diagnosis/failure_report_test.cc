#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/diagnosis/peers.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Life = PeerStatus::Life;
using Peers = std::vector<PeerStatus>;

Failure AllReduceSeventeen(const std::string& error) {
  Failure failure;
  failure.attempted = "backward of step 4";
  failure.rank = 0;
  failure.world_size = 3;
  failure.collective.state = CollectiveReport::State::kFailed;
  failure.collective.sequence = 17;
  failure.collective.description = "all_reduce #17 of [[4]] float32";
  failure.collective.seconds_since = 2.04;
  failure.error = error;
  failure.collective_timeout = absl::Seconds(2);
  return failure;
}

// The same failure, after its timeout.
Failure TimedOut(Failure failure) {
  failure.collective.seconds_to_failure = 2.0;
  return failure;
}

PeerStatus Peer(int rank, Life life, uint64_t sequence,
                const std::string& doing) {
  PeerStatus peer;
  peer.rank = rank;
  peer.life = life;
  peer.pulse.doing = doing;
  peer.pulse.progress = {{sequence, doing}};
  return peer;
}

std::string MessageOf(const absl::Status& status) {
  return std::string(status.message());
}

TEST(FailureReportTest, NamesADeadRankOnly) {
  PeerStatus dead = Peer(2, Life::kDead, 17, "all_reduce #17");
  dead.death = "signal 9 (Killed)";
  const absl::Status status = DescribeFailure(
      AllReduceSeventeen("Connection closed by peer"),
      Peers{Peer(1, Life::kFailed, 17, "all_reduce #17"), dead});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("backward of step 4 failed on rank 0 of 3 in "
                              "all_reduce #17 of [[4]] float32, 2.0 s after"),
                    HasSubstr("rank 2 is dead: signal 9 (Killed)"),
                    HasSubstr("(Connection closed by peer)"),
                    Not(HasSubstr("rank 1"))));
}

TEST(FailureReportTest, SaysWhereOnTheMeshRanksAre) {
  Failure failure = AllReduceSeventeen("Connection closed by peer");
  failure.collective.places = {"pp 0, tp 0", "pp 0, tp 1", "pp 1, tp 0"};
  PeerStatus dead = Peer(2, Life::kDead, 17, "all_reduce #17");
  dead.death = "signal 9 (Killed)";
  EXPECT_THAT(MessageOf(DescribeFailure(failure, Peers{dead})),
              AllOf(HasSubstr("on rank 0 (pp 0, tp 0) of 3 in all_reduce #17"),
                    HasSubstr("rank 2 (pp 1, tp 0) is dead: signal 9")));
}

TEST(FailureReportTest, SaysOnWhichHostOthersAre) {
  Failure failure = AllReduceSeventeen("waited 2000ms for recv");
  PeerStatus silent = Peer(2, Life::kSilent, 17, "all_reduce #17");
  silent.pulse.host = "gpu07";
  EXPECT_THAT(MessageOf(DescribeFailure(failure, Peers{silent})),
              HasSubstr("rank 2 (gpu07) gives no sign of life"));
  failure.collective.places = {"dp 0", "dp 1", "dp 2"};
  EXPECT_THAT(MessageOf(DescribeFailure(failure, Peers{silent})),
              HasSubstr("rank 2 (dp 2, gpu07) gives no sign of life"));
}

TEST(FailureReportTest, NamesALateRankAndWhatItDoes) {
  const absl::Status status =
      DescribeFailure(TimedOut(AllReduceSeventeen("waited 2000ms for recv")),
                      Peers{Peer(1, Life::kAlive, 16, "barrier #16"),
                            Peer(2, Life::kAlive, 0, "")});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("rank 1 did not arrive: it is alive, and its "
                              "last call is barrier #16; "),
                    HasSubstr("rank 2 did not arrive: it is alive, and it has "
                              "not started any collective"),
                    HasSubstr("raise the collective timeout (now 2s)")));
}

TEST(FailureReportTest, NamesSilentAndDepartedRanks) {
  const absl::Status status =
      DescribeFailure(AllReduceSeventeen("Connection reset"),
                      Peers{Peer(1, Life::kSilent, 17, "all_reduce #17"),
                            Peer(2, Life::kLeft, 16, "barrier #16")});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("rank 1 gives no sign of life"),
                    HasSubstr("rank 2 has left the job; its last call "
                              "is barrier #16")));
}

TEST(FailureReportTest, NamesARankThatCalledSomethingElse) {
  const absl::Status status =
      DescribeFailure(TimedOut(AllReduceSeventeen("no answer")),
                      Peers{Peer(1, Life::kAlive, 17, "broadcast #17")});
  EXPECT_THAT(MessageOf(status),
              HasSubstr("rank 1 called broadcast #17 instead"));
}

// All-reduce #3 of a group of ranks 0 and 2, among other groups.
Failure InGroup(const std::string& error) {
  Failure failure = AllReduceSeventeen(error);
  failure.collective.group = 2;
  failure.collective.ranks = {0, 2};
  failure.collective.sequence = 3;
  failure.collective.description = "all_reduce #3 of group dp (ranks 0, 2)";
  return failure;
}

PeerStatus PeerWithGroups(int rank, uint64_t of_all, uint64_t of_group) {
  PeerStatus peer = Peer(rank, Life::kAlive, of_all, "recv with rank 3");
  peer.pulse.progress.resize(3);
  peer.pulse.progress[2] = {of_group, absl::StrCat("barrier #", of_group)};
  return peer;
}

TEST(FailureReportTest, ProgressIsComparedWithinTheGroupOnly) {
  const std::string message = MessageOf(DescribeFailure(
      TimedOut(InGroup("no answer")),
      Peers{PeerWithGroups(1, 0, 1), PeerWithGroups(2, 90, 2)}));
  EXPECT_THAT(message,
              AllOf(HasSubstr("in all_reduce #3 of group dp (ranks 0, 2), "),
                    HasSubstr("rank 2 did not arrive: it is alive, and its "
                              "last call is recv with rank 3"),
                    Not(HasSubstr("rank 1"))));
}

TEST(FailureReportTest, ARankOfAnotherGroupCalledNothingElse) {
  EXPECT_THAT(MessageOf(DescribeFailure(TimedOut(InGroup("no answer")),
                                        Peers{PeerWithGroups(1, 17, 3)})),
              HasSubstr("every rank is alive"));
  EXPECT_THAT(MessageOf(DescribeFailure(TimedOut(InGroup("no answer")),
                                        Peers{PeerWithGroups(2, 17, 3)})),
              HasSubstr("rank 2 called barrier #3 instead"));
}

Failure RecvFromRankOne(const std::string& error) {
  Failure failure = AllReduceSeventeen(error);
  failure.collective.peer = 1;
  failure.collective.description = "recv with rank 1 after #17";
  return failure;
}

TEST(FailureReportTest, OfAMessageTheOtherEndIsLateAndNobodyElse) {
  const std::string message = MessageOf(
      DescribeFailure(TimedOut(RecvFromRankOne("no answer")),
                      Peers{Peer(1, Life::kAlive, 17, "recv with rank 2"),
                            Peer(2, Life::kAlive, 3, "barrier #3")}));
  EXPECT_THAT(message, AllOf(HasSubstr("rank 1 did not answer: it is alive, "
                                       "and its last call is recv with "
                                       "rank 2"),
                             Not(HasSubstr("barrier #3"))));
}

PeerStatus Failed(int rank, int64_t order, const std::string& failure) {
  PeerStatus peer = Peer(rank, Life::kFailed, 17, "barrier #17");
  peer.pulse.failure_order = order;
  peer.pulse.failure = failure;
  return peer;
}

TEST(FailureReportTest, OfFailedRanksTheFirstIsNamed) {
  Failure failure = RecvFromRankOne("Connection closed by peer");
  failure.order = 3;
  const Peers peers = {Failed(1, 2, "recv with rank 2"),
                       Failed(2, 1, "send with rank 1")};
  EXPECT_THAT(MessageOf(DescribeFailure(failure, peers)),
              AllOf(HasSubstr("rank 2 failed first, in send with rank 1 ("),
                    Not(HasSubstr("rank 1 failed"))));
  failure.order = 1;
  EXPECT_THAT(MessageOf(DescribeFailure(failure, peers)),
              HasSubstr("every rank is alive ("));
}

TEST(FailureReportTest, WhoFailedOrLeftBecauseOfADeathIsNotNamed) {
  Failure failure = RecvFromRankOne("Connection closed by peer");
  failure.order = 2;
  PeerStatus dead = Peer(3, Life::kDead, 5, "barrier #5");
  dead.death = "signal 9 (Killed)";
  EXPECT_THAT(
      MessageOf(DescribeFailure(
          failure,
          Peers{Failed(1, 1, "recv"), Peer(2, Life::kLeft, 17, "x"), dead})),
      AllOf(HasSubstr("rank 3 is dead: signal 9 (Killed) ("),
            Not(HasSubstr("rank 1 failed")), Not(HasSubstr("rank 2 has"))));
}

// The last pulse of a rank may be older than its last call.
TEST(FailureReportTest, OnlyWhatASilentRankHasToldIsSaidOfIt) {
  const std::string message = MessageOf(
      DescribeFailure(AllReduceSeventeen("Connection reset"),
                      Peers{Peer(1, Life::kSilent, 0, ""),
                            Peer(2, Life::kStopped, 16, "barrier #16")}));
  EXPECT_THAT(
      message,
      AllOf(HasSubstr("cut off); its last call is not known; rank 2 is "
                      "stopped by a signal (SIGSTOP); its last known call is "
                      "barrier #16"),
            Not(HasSubstr("has not started any"))));
}

// Only the time of a failure matters, not the backend's message.
TEST(FailureReportTest, WhatFailsBeforeItsTimeoutHasNotTimedOut) {
  Failure early = AllReduceSeventeen("the proxy's connection timed out");
  early.collective.seconds_to_failure = 0.3;
  const Peers alive = {Peer(1, Life::kAlive, 17, "all_reduce #17")};
  EXPECT_EQ(DescribeFailure(early, alive).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(DescribeFailure(TimedOut(early), alive).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(FailureReportTest, SaysSoWhenNobodyIsToBlame) {
  const absl::Status status = DescribeFailure(
      AllReduceSeventeen("something"),
      Peers{Peer(1, Life::kAlive, 18, "barrier #18"),
            Peer(2, Life::kFailed, 17, "all_reduce #17 of [[4]] float32")});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(MessageOf(status),
              HasSubstr("every rank is alive and has started it (something)"));
}

TEST(FailureReportTest, KeepsBothSidesOfAMismatchWithoutTheNoise) {
  const std::string options =
      ", TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, "
      "memory_format=(nullopt))";
  const std::string error = absl::StrCat(
      "Detected mismatch between collectives on ranks. Rank 0 is running "
      "collective: CollectiveFingerPrint(OpType=ALLREDUCE",
      options, "), but Rank 1 is running collective: CollectiveFingerPrint(",
      "OpType=BROADCAST", options,
      ").Collectives differ in the following aspects: \t Op type: ",
      "ALLREDUCEvs BROADCAST");
  const absl::Status status = DescribeMismatch(AllReduceSeventeen(error));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(
      MessageOf(status),
      HasSubstr("Rank 0 is running collective: "
                "CollectiveFingerPrint(OpType=ALLREDUCE), but Rank 1 is "
                "running collective: CollectiveFingerPrint(OpType=BROADCAST). "
                "Collectives differ in the following aspects: Op type: "
                "ALLREDUCE vs BROADCAST; make all ranks"));
}

TEST(FailureReportTest, BlamesNobodyOfWhomNothingIsKnown) {
  const absl::Status status =
      DescribeFailure(AllReduceSeventeen("Connection closed"),
                      Peers{Peer(1, Life::kUnknown, 0, "")});
  EXPECT_THAT(MessageOf(status), Not(HasSubstr("rank 1")));
}

TEST(FailureReportTest, ALostStorePointsAtItsServer) {
  const absl::Status status = DescribeFailure(
      AllReduceSeventeen("x"), absl::UnavailableError("connection reset"));
  EXPECT_THAT(MessageOf(status),
              HasSubstr("rank 0 or the launcher, is probably dead"));
}

TEST(FailureReportTest, OtherFailuresAreNotBlamedOnACollective) {
  const absl::Status status =
      DescribeOtherFailure(AllReduceSeventeen("out of memory"));
  EXPECT_EQ(MessageOf(status),
            "backward of step 4 failed on rank 0 of 3: out of memory");
}

}  // namespace
}  // namespace rankwise

#include "parallel/pipeline/schedule/schedule.h"

#include <cstddef>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rankwise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Calls check(schedule, p, m, v) for all schedules with p <= 8, m <= 33
// (dualpipev: m >= 2p) and, for interleaved_1f1b, v <= 4.
template <typename Check>
void ForAllSchedules(Check check) {
  for (const std::string& name : ScheduleNames()) {
    const bool interleaved = name == "interleaved_1f1b";
    const int least_v = name == "zbv" || name == "dualpipev" ? 2 : 1;
    const int most_v = interleaved ? 4 : least_v;
    for (int p = 1; p <= 8; ++p) {
      for (int m = name == "dualpipev" ? 2 * p : 1; m <= 33; ++m) {
        for (int v = least_v; v <= most_v; ++v) {
          SCOPED_TRACE(absl::StrCat(name, " p=", p, " m=", m, " v=", v));
          const absl::StatusOr<Schedule> schedule =
              MakeSchedule(name, {p, m, v});
          ASSERT_TRUE(schedule.ok()) << schedule.status();
          check(*schedule, p, m, v);
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

std::string ErrorOf(const std::string& name, const ScheduleShape& shape) {
  const absl::StatusOr<Schedule> schedule = OpenSchedule(name, shape);
  EXPECT_TRUE(absl::IsInvalidArgument(schedule.status()));
  return std::string(schedule.status().message());
}

std::string WriteFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(MakeScheduleTest, IsValidForEveryShape) {
  ForAllSchedules([](const Schedule& schedule, int p, int m, int v) {
    const absl::StatusOr<ScheduleFacts> facts = Validate(schedule);
    ASSERT_TRUE(facts.ok()) << facts.status();
    EXPECT_EQ(schedule.num_ranks(), p);
    EXPECT_EQ(schedule.num_micro_batches, m);
    EXPECT_EQ(schedule.num_stages(), p * v);
  });
}

TEST(MakeScheduleTest, EachStageGoesThroughMicroBatchesInOrder) {
  ForAllSchedules([](const Schedule& schedule, int, int, int) {
    for (const std::vector<Action>& actions : schedule.actions) {
      std::map<std::pair<int, ActionKind>, int> next;
      for (const Action& action : actions) {
        std::vector<ActionKind> kinds = {action.kind};
        if (action.kind == ActionKind::kBackward)
          kinds = {ActionKind::kInputGrad, ActionKind::kWeightGrad};
        for (const ActionKind kind : kinds) {
          ASSERT_EQ(action.micro_batch, (next[{action.stage, kind}]++))
              << ToString(action);
        }
      }
    }
  });
}

TEST(MakeScheduleTest, ChunksOneIsGivenWhereNoneAreAskedFor) {
  EXPECT_EQ(MakeSchedule("1f1b", {4, 8})->num_stages(), 4);
  EXPECT_EQ(MakeSchedule("interleaved_1f1b", {4, 8})->num_stages(), 8);
  EXPECT_EQ(MakeSchedule("zbv", {4, 8})->num_stages(), 8);
}

TEST(MakeScheduleTest, PlacesStages) {
  EXPECT_THAT(MakeSchedule("1f1b", {3, 1})->rank_of_stage,
              ElementsAre(0, 1, 2));
  EXPECT_THAT(MakeSchedule("interleaved_1f1b", {2, 1, 3})->rank_of_stage,
              ElementsAre(0, 1, 0, 1, 0, 1));
  const Schedule zbv = *MakeSchedule("zbv", {3, 1});
  EXPECT_THAT(zbv.rank_of_stage, ElementsAre(0, 1, 2, 2, 1, 0));
  EXPECT_THAT(zbv.StagesOf(1), ElementsAre(1, 4));
}

TEST(MakeScheduleTest, Naive) {
  EXPECT_EQ(ToCsv(*MakeSchedule("naive", {2, 2})),
            "0F0,0B0,0F1,0B1\n"
            "1F0,1B0,1F1,1B1\n");
}

TEST(MakeScheduleTest, GPipe) {
  EXPECT_EQ(ToCsv(*MakeSchedule("gpipe", {2, 2})),
            "0F0,0F1,0B0,0B1\n"
            "1F0,1F1,1B0,1B1\n");
}

TEST(MakeScheduleTest, OneForwardOneBackward) {
  EXPECT_EQ(ToCsv(*MakeSchedule("1f1b", {3, 4})),
            "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
            "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
            "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n");
}

// The order of torch 2.11's ScheduleInterleaved1F1B and of Megatron-LM.
TEST(MakeScheduleTest, Interleaved) {
  EXPECT_EQ(ToCsv(*MakeSchedule("interleaved_1f1b", {2, 4, 2})),
            "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
            "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3"
            "\n");
}

TEST(MakeScheduleTest, InterleavedLeavesOutTheEndOfAShortRound) {
  const Schedule whole = *MakeSchedule("interleaved_1f1b", {4, 8, 2});
  const Schedule part = *MakeSchedule("interleaved_1f1b", {4, 6, 2});
  EXPECT_EQ(part.actions, FirstMicroBatches(whole, 6).actions);
  EXPECT_EQ(FirstMicroBatches(whole, 6).num_micro_batches, 6);
}

TEST(MakeScheduleTest, ZeroBubbleH1) {
  EXPECT_EQ(ToCsv(*MakeSchedule("zero_bubble_h1", {2, 3})),
            "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n"
            "1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n");
}

// The order of torch 2.11's ScheduleZBVZeroBubble.
TEST(MakeScheduleTest, ZeroBubbleV) {
  EXPECT_EQ(ToCsv(*MakeSchedule("zbv", {2, 3})),
            "0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0I0,0W0,3F2,3I2,3W2,0I1,0W1,"
            "0I2,0W2\n"
            "1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,2F2,2I1,2W1,1I1,2I2,1I2,1W1,"
            "2W2,1W2\n");
}

TEST(MakeScheduleTest, ZeroBubbleH2) {
  EXPECT_EQ(ToCsv(*MakeSchedule("zero_bubble_h2", {2, 4})),
            "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
            "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3\n");
}

// The files were written by torch 2.11's ScheduleDualPipeV.
TEST(MakeScheduleTest, DualPipeVIsTorchs) {
  for (const int p : {2, 4}) {
    const std::string path =
        absl::StrCat("parallel/pipeline/schedule/testdata/dualpipev_p", p, "_m",
                     2 * p, ".csv");
    const absl::StatusOr<Schedule> torchs = OpenSchedule(path, {p, 2 * p, 2});
    ASSERT_TRUE(torchs.ok()) << torchs.status();
    const Schedule ours = *MakeSchedule("dualpipev", {p, 2 * p});
    EXPECT_EQ(ToCsv(ours), ToCsv(*torchs));
    EXPECT_EQ(ours.actions, torchs->actions);
    EXPECT_EQ(ours.rank_of_stage, torchs->rank_of_stage);
  }
}

TEST(MakeScheduleTest, ALimitMayFollowTheNameOfThePlannedOne) {
  for (const std::string name : {"zero_bubble_auto", "zero_bubble_auto:6"})
    EXPECT_TRUE(IsScheduleName(name)) << name;
  for (const std::string name :
       {"zero_bubble_auto:", "zero_bubble_auto:0", "zero_bubble_auto:6:6",
        "zero_bubble_auto:x", "zbv:6"})
    EXPECT_FALSE(IsScheduleName(name)) << name;
  EXPECT_EQ(MakeSchedule("zero_bubble_auto:6", {2, 4})->name,
            "zero_bubble_auto:6");
}

TEST(MakeScheduleTest, DualPipeVNeedsTwoMicroBatchesPerRank) {
  EXPECT_TRUE(MakeSchedule("dualpipev", {4, 8}).ok());
  EXPECT_EQ(ErrorOf("dualpipev", {4, 7}),
            "--microbatches=7: --schedule=dualpipev needs 2 micro-batches per "
            "rank, 8 for --pp=4; raise --microbatches, or take --schedule=zbv");
}

TEST(MakeScheduleTest, RefusesWithTheFlagThatIsWrong) {
  EXPECT_THAT(MakeSchedule("2f2b", {1, 1}).status().message(),
              AllOf(HasSubstr("--schedule=2f2b: must be one of naive, gpipe"),
                    HasSubstr("zbv, dualpipev, zero_bubble_auto")));
  EXPECT_EQ(ErrorOf("1f1b", {0, 1}), "--pp=0: must be at least 1");
  EXPECT_EQ(ErrorOf("1f1b", {1, 0}), "--microbatches=0: must be at least 1");
  EXPECT_EQ(ErrorOf("zbv", {1, 1, -1}), "--chunks=-1: must be at least 1");
  EXPECT_THAT(ErrorOf("1f1b", {2, 2, 2}),
              AllOf(HasSubstr("--chunks=2: --schedule=1f1b has 1 stage per"),
                    HasSubstr("--schedule=interleaved_1f1b")));
  EXPECT_THAT(ErrorOf("zbv", {2, 2, 3}),
              HasSubstr("--chunks=3: --schedule=zbv has 2 stages per rank"));
  EXPECT_THAT(ErrorOf("gpipe", {100000, 100000}), HasSubstr("too large"));
  EXPECT_THAT(ErrorOf("zbv", {100000, 1}), HasSubstr("too large"));
}

// Within the test's time limit only if ranks skip the turns in which they idle.
TEST(MakeScheduleTest, AStepMayBeMuchShorterThanThePipeline) {
  constexpr int kRanks = 1 << 17, kMicroBatches = 8;
  for (const char* name : {"1f1b", "zero_bubble_h1", "zero_bubble_h2"}) {
    const auto schedule = MakeSchedule(name, {kRanks, kMicroBatches});
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    const auto facts = Validate(*schedule);
    ASSERT_TRUE(facts.ok()) << name << ": " << facts.status();
    EXPECT_EQ(facts->peak_activations.front(), kMicroBatches) << name;
  }
}

TEST(OpenScheduleTest, KnowsNamesAndFiles) {
  EXPECT_EQ(OpenSchedule("gpipe", {2, 2})->name, "gpipe");
  const Schedule made = *MakeSchedule("zbv", {2, 4});
  const std::string path = WriteFile("zbv.csv", ToCsv(made));
  const absl::StatusOr<Schedule> read = OpenSchedule(path, {2, 4});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, path);
  EXPECT_EQ(read->actions, made.actions);
  EXPECT_EQ(read->rank_of_stage, made.rank_of_stage);
}

TEST(OpenScheduleTest, LeavesOutCommunication) {
  const std::string path = WriteFile("with_communication.csv",
                                     "0F0,0SEND_F0,0RECV_B0,0B0\n"
                                     "1RECV_F0,1F0,1B0,1SEND_B0\n");
  const absl::StatusOr<Schedule> read = OpenSchedule(path, {2, 1});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToCsv(*read), "0F0,0B0\n1F0,1B0\n");
}

TEST(OpenScheduleTest, RefusesAFileThatDoesNotFit) {
  const std::string path = WriteFile("two_by_one.csv", "0F0,0B0\n1F0,1B0\n");
  EXPECT_THAT(ErrorOf(path, {4, 1}),
              AllOf(HasSubstr("--pp=4 does not fit --schedule="),
                    HasSubstr("two_by_one.csv, which has 2 rows")));
  EXPECT_THAT(ErrorOf(path, {2, 8}),
              AllOf(HasSubstr("--microbatches=8 does not fit --schedule="),
                    HasSubstr("which has 1 micro-batches")));
  EXPECT_THAT(ErrorOf(path, {2, 1, 2}),
              HasSubstr("--chunks=2 does not fit --schedule="));
  EXPECT_TRUE(OpenSchedule(path, {2, 1, 1}).ok());
}

TEST(OpenScheduleTest, RefusesAFileThatCannotRun) {
  const std::string path =
      WriteFile("circle.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_THAT(ErrorOf(path, {2, 2}),
              AllOf(HasSubstr("circle.csv: deadlock"), HasSubstr("rank 1")));
}

TEST(OpenScheduleTest, NamesTheSchedulesWhereThereIsNoFile) {
  EXPECT_THAT(ErrorOf("1f1", {2, 2}),
              AllOf(HasSubstr("--schedule=1f1: neither one of naive, gpipe"),
                    HasSubstr("nor a file")));
}

std::vector<std::string> Text(const std::vector<Action>& actions) {
  std::vector<std::string> text;
  for (const Action& action : actions) text.push_back(ToString(action));
  return text;
}

TEST(ForwardScheduleTest, AChain) {
  const Schedule schedule = MakeForwardSchedule({0, 1}, 2, 2);
  EXPECT_THAT(Text(schedule.actions[0]),
              ElementsAre("0F0", "0SEND_F0", "0F1", "0SEND_F1"));
  EXPECT_THAT(Text(schedule.actions[1]),
              ElementsAre("1RECV_F0", "1F0", "1RECV_F1", "1F1"));
}

// The last stage is also on rank 0, which starts the next micro-batch before
// the first returns.
TEST(ForwardScheduleTest, AVShapeIsPipelined) {
  const Schedule schedule = MakeForwardSchedule({0, 1, 1, 0}, 2, 2);
  EXPECT_THAT(Text(schedule.actions[0]),
              ElementsAre("0F0", "0SEND_F0", "0F1", "3RECV_F0", "0SEND_F1",
                          "3F0", "3RECV_F1", "3F1"));
  EXPECT_THAT(Text(schedule.actions[1]),
              ElementsAre("1RECV_F0", "1F0", "2F0", "2SEND_F0", "1RECV_F1",
                          "1F1", "2F1", "2SEND_F1"));
}

// Runs the lists with sends that wait for their receive and receives that wait
// for their send, the strictest possible backend. Returns the number of
// completed actions.
size_t RunInLockstep(const Schedule& schedule) {
  const Values values(schedule);
  std::vector<size_t> next(schedule.actions.size());
  size_t done = 0;
  for (bool moved = true; moved;) {
    moved = false;
    std::map<size_t, int> met;  // value -> rank waiting at its message
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      const std::vector<Action>& actions = schedule.actions[rank];
      if (next[rank] == actions.size()) continue;
      const Action& action = actions[next[rank]];
      if (!IsCompute(action.kind)) {
        const auto [other, alone] = met.emplace(values.CarriedBy(action), rank);
        if (alone) continue;
        ++next[other->second];
        ++done;
      }
      ++next[rank];
      ++done;
      moved = true;
    }
  }
  return done;
}

TEST(ForwardScheduleTest, NoPlacementDeadlocks) {
  for (const auto& [rank_of_stage, num_ranks] :
       std::vector<std::pair<std::vector<int>, int>>{
           {{0}, 1},
           {{0, 1, 2, 3}, 4},
           {{0, 1, 2, 0, 1, 2}, 3},
           {{0, 1, 2, 2, 1, 0}, 3},
           {{0, 0, 1, 0, 2}, 3},
           {{2, 0, 1, 1, 2, 0, 2}, 3}}) {
    const Schedule schedule = MakeForwardSchedule(rank_of_stage, num_ranks, 7);
    size_t actions = 0;
    for (const auto& list : schedule.actions) actions += list.size();
    EXPECT_EQ(RunInLockstep(schedule), actions);
  }
}

}  // namespace
}  // namespace rankwise

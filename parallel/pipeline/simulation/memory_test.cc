// Computed by hand. A message is one byte, and a stage stores ten.
#include "parallel/pipeline/simulation/memory.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

constexpr double kKept = 10;

std::vector<StageBytes> Stages(int count) {
  std::vector<StageBytes> stages(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    StageBytes& stage = stages[static_cast<size_t>(i)];
    stage.input = i > 0 ? 1 : 0;
    stage.output = i + 1 < count ? 1 : 0;
    stage.kept = kKept;
  }
  return stages;
}

double PeakOf(const std::string& name, const ScheduleShape& shape,
              const std::vector<int>& ranks) {
  const Schedule schedule = *AddCommunication(*MakeSchedule(name, shape));
  return PeakBytes(schedule, ranks, {.stages = Stages(schedule.num_stages())});
}

TEST(PeakBytesTest, OneRankKeepsWhatItsScheduleHasInFlight) {
  EXPECT_EQ(PeakOf("gpipe", {1, 4}, {0}), 4 * kKept);
  EXPECT_EQ(PeakOf("1f1b", {1, 4}, {0}), kKept);
}

// 0F3 0SEND_F3 0RECV_B2 0RECV_B3 0B2: two outputs and their gradients.
// 1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1RECV_F2 1F1: an input, the next one, and
// a gradient that is not known to have arrived.
TEST(PeakBytesTest, MessagesOf1F1B) {
  EXPECT_EQ(PeakOf("1f1b", {2, 4}, {0}), 2 * kKept + 4);
  EXPECT_EQ(PeakOf("1f1b", {2, 4}, {1}), kKept + 3);
}

// ... 1I1 1SEND_B1 1RECV_F2 1W0 1F2: inputs 1 and 2, a sent gradient, and the
// buffer of input 0, which W0 has freed.
TEST(PeakBytesTest, BuffersOfReceivesStayForLaterOnes) {
  EXPECT_EQ(PeakOf("zero_bubble_h1", {2, 4}, {1}), kKept + 4);
}

TEST(PeakBytesTest, GPipePostsAllReceives) {
  EXPECT_EQ(PeakOf("gpipe", {2, 4}, {0}), 4 * kKept + 8);
  EXPECT_EQ(PeakOf("gpipe", {2, 4}, {1}), 4 * kKept + 4);
}

TEST(PeakBytesTest, OfEachRankIsThatOfItAlone) {
  for (const char* name : {"1f1b", "zbv", "interleaved_1f1b"}) {
    const int chunks = std::string(name) == "1f1b" ? 1 : 2;
    const Schedule schedule =
        *AddCommunication(*MakeSchedule(name, {3, 6, chunks}));
    const StepMemory memory = {.stages = Stages(schedule.num_stages())};
    std::vector<double> alone;
    for (int rank = 0; rank < 3; ++rank)
      alone.push_back(PeakBytes(schedule, {rank}, memory));
    EXPECT_EQ(PeakBytesPerRank(schedule, memory), alone) << name;
  }
}

// The output, its copy as the input, and the buffer for its gradient.
TEST(PeakBytesTest, RanksOfOneProcessHoldWhatTheyHoldTogether) {
  EXPECT_EQ(PeakOf("naive", {2, 1}, {0}), kKept + 2);
  EXPECT_EQ(PeakOf("naive", {2, 1}, {1}), kKept + 1);
  EXPECT_EQ(PeakOf("naive", {2, 1}, {0, 1}), 2 * kKept + 3);
}

TEST(PeakBytesTest, StagesOfOneRankShareAMessage) {
  EXPECT_EQ(PeakOf("interleaved_1f1b", {1, 1, 2}, {0}), 2 * kKept + 1);
}

// At 0B2: a sent output, two buffers for gradients, and all of one micro-batch;
// at 1B1: an input, the next one, and a sent gradient.
TEST(PeakBytesTest, RecomputingKeepsInputsAndOneMicroBatch) {
  std::vector<StageBytes> stages = Stages(2);
  for (StageBytes& stage : stages) {
    stage.kept = 0;
    stage.recomputed = kKept + stage.output;
  }
  const StepMemory memory = {.stages = stages, .recompute = true};
  const Schedule schedule = *AddCommunication(*MakeSchedule("1f1b", {2, 4}));
  EXPECT_EQ(PeakBytes(schedule, {0}, memory), 3 + kKept + 1);
  EXPECT_EQ(PeakBytes(schedule, {1}, memory), 3 + kKept);
}

TEST(PeakBytesTest, WeightGradientsThatAreDeferredKeepTheirOwn) {
  std::vector<StageBytes> stages = Stages(1);
  stages[0].until_weight_grad = 7;
  const auto peak = [&](const std::vector<Action>& actions) {
    const Schedule schedule = {"", 2, {0}, {actions}};
    return PeakBytes(schedule, {0}, {.stages = stages});
  };
  const Action f0 = {0, 0, ActionKind::kForward};
  const Action f1 = {0, 1, ActionKind::kForward};
  const Action i0 = {0, 0, ActionKind::kInputGrad};
  const Action w0 = {0, 0, ActionKind::kWeightGrad};
  EXPECT_EQ(peak({f0, i0, w0, f1}), kKept);
  EXPECT_EQ(peak({f0, i0, f1, w0}), 7 + kKept);
}

}  // namespace
}  // namespace rankwise

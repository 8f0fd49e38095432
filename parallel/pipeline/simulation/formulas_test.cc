// The simulator compared to the papers' closed forms.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/schedule/schedule.h"
#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

constexpr double kRounding = 1e-12;

StageCosts Costs(double f, double i, double w) {
  return {.forward_seconds = f,
          .input_grad_seconds = i,
          .weight_grad_seconds = w,
          .backward_seconds = i + w};
}

Bubbles SimulatedBubbles(const std::string& name, const ScheduleShape& shape,
                         const StageCosts& costs, double overlap = 0) {
  const Schedule schedule = MakeSchedule(name, shape).value();
  return MeasureBubbles(
      Simulate(schedule, {.stages = {costs}, .overlap = overlap}).value());
}

// Returns the peak of any rank in whole micro-batches.
double PeakActivations(const std::string& name, const ScheduleShape& shape) {
  const std::vector<int> peaks =
      Validate(MakeSchedule(name, shape).value())->peak_activations;
  return 1.0 * *std::max_element(peaks.begin(), peaks.end()) / shape.chunks;
}

// Calls check(shape) for p <= 6, m <= 18 and the v that the schedule supports;
// for dualpipev m >= 2p.
template <typename Check>
void ForShapes(const std::string& name, Check check) {
  const int least_v = name == "zbv" || name == "dualpipev" ? 2 : 1;
  const int most_v = name == "interleaved_1f1b" ? 4 : least_v;
  for (int p = 1; p <= 6; ++p) {
    for (int m = name == "dualpipev" ? 2 * p : 1; m <= 18; ++m) {
      for (int v = least_v; v <= most_v; ++v) {
        SCOPED_TRACE(absl::StrCat(name, " p=", p, " m=", m, " v=", v));
        check(ScheduleShape{p, m, v});
      }
    }
  }
}

const StageCosts kCosts[] = {
    Costs(1, 1, 1), Costs(1, 2, 1),        Costs(2, 1, 1), Costs(1, 1, 2),
    Costs(3, 5, 2), Costs(1, 3, 3),        Costs(5, 1, 1), Costs(1, 1, 5),
    Costs(1, 2, 3), Costs(0.1, 0.25, 0.15)};

TEST(FormulasTest, SimulatedBubblesAreTheClosedForms) {
  for (const std::string& name : ScheduleNames()) {
    for (const StageCosts& costs : kCosts) {
      ForShapes(name, [&](const ScheduleShape& shape) {
        for (const double overlap : {0, 1}) {
          if (overlap > 0 && name != "dualpipev") continue;
          const Bubbles bubbles = SimulatedBubbles(name, shape, costs, overlap);
          const ScheduleFormulas formulas =
              FormulasOf(name, shape, costs, overlap);
          if (formulas.wall_bubble) {
            EXPECT_NEAR(bubbles.wall, *formulas.wall_bubble, kRounding);
          }
          if (formulas.span_bubble) {
            EXPECT_NEAR(bubbles.span, *formulas.span_bubble, kRounding);
          }
        }
      });
    }
  }
}

TEST(FormulasTest, PeakActivationsAreTheTables) {
  for (const std::string& name : ScheduleNames()) {
    ForShapes(name, [&](const ScheduleShape& shape) {
      const ScheduleFormulas formulas = FormulasOf(name, shape, kCosts[0]);
      if (formulas.peak_activations) {
        EXPECT_EQ(PeakActivations(name, shape), *formulas.peak_activations);
      }
    });
  }
}

// Formulas exist wherever the papers claim them, with the papers' values.
TEST(FormulasTest, ClosedFormsOfThePapers) {
  ForShapes("naive", [](const ScheduleShape& shape) {
    const int p = shape.num_ranks;
    const ScheduleFormulas formulas = FormulasOf("naive", shape, kCosts[4]);
    EXPECT_EQ(formulas.wall_bubble, (p - 1.0) / p);
    EXPECT_EQ(formulas.peak_activations, 1);
  });
  for (const std::string name : {"gpipe", "1f1b"}) {
    ForShapes(name, [&](const ScheduleShape& shape) {
      const int p = shape.num_ranks, m = shape.num_micro_batches;
      const ScheduleFormulas formulas = FormulasOf(name, shape, kCosts[4]);
      EXPECT_EQ(formulas.wall_bubble, (p - 1.0) / (m + p - 1));
      EXPECT_EQ(formulas.peak_activations,
                name == "gpipe" ? m : std::min(p, m));
    });
  }
  ForShapes("interleaved_1f1b", [](const ScheduleShape& shape) {
    const int p = shape.num_ranks, m = shape.num_micro_batches;
    if (m % p != 0) return;
    EXPECT_EQ(FormulasOf("interleaved_1f1b", shape, kCosts[4]).wall_bubble,
              (p - 1.0) / (shape.chunks * m + p - 1));
  });
  ForShapes("zbv", [](const ScheduleShape& shape) {
    const int p = shape.num_ranks, m = shape.num_micro_batches;
    if (m < 2 * p - 1) return;
    const ScheduleFormulas formulas = FormulasOf("zbv", shape, kCosts[0]);
    EXPECT_EQ(formulas.span_bubble, 0);
    EXPECT_EQ(formulas.wall_bubble, (p - 1.0) / (6 * m + p - 1));
    EXPECT_EQ(formulas.peak_activations, p);
  });
}

// By the wall clock, (p-1)(F+B-2W) seconds (B = I + W) if W fills idle time.
TEST(FormulasTest, BubbleTimeOfZeroBubbleH1) {
  for (const StageCosts& costs :
       {Costs(1, 1, 1), Costs(3, 5, 2), Costs(5, 1, 1), Costs(2, 4, 0.5)}) {
    ForShapes("zero_bubble_h1", [&](const ScheduleShape& shape) {
      if (shape.num_micro_batches < shape.num_ranks) return;
      const Bubbles bubbles = SimulatedBubbles("zero_bubble_h1", shape, costs);
      EXPECT_NEAR(bubbles.wall * bubbles.wall_seconds,
                  (shape.num_ranks - 1) *
                      (costs.forward_seconds + costs.backward_seconds -
                       2 * costs.weight_grad_seconds),
                  1e-9);
    });
  }
}

// The wall bubbles of torch 2.11's own tables at zero communication cost.
TEST(FormulasTest, BubblesOfTorchsTables) {
  const auto wall_percent = [](const std::string& name, int p, int m) {
    return 100 * SimulatedBubbles(name, {p, m, 2}, Costs(1, 1, 1)).wall;
  };
  EXPECT_NEAR(wall_percent("interleaved_1f1b", 4, 8), 15.8, 0.05);
  EXPECT_NEAR(wall_percent("zbv", 4, 8), 5.9, 0.05);
  EXPECT_NEAR(wall_percent("interleaved_1f1b", 8, 32), 9.9, 0.05);
  EXPECT_NEAR(wall_percent("zbv", 8, 32), 3.5, 0.05);
}

// Qi et al. 2024, table 1: (p-1)(F+I-2W) seconds on the first rank, and at most
// 2p-1 micro-batches anywhere; by the wall clock (p-1)F if F = I = W.
TEST(FormulasTest, ZeroBubbleH2AtThePapersSizes) {
  for (const int p : {4, 8}) {
    const ScheduleShape shape = {p, 4 * p, 1};
    const Bubbles equal =
        SimulatedBubbles("zero_bubble_h2", shape, Costs(1, 1, 1));
    EXPECT_NEAR(equal.span, 0, kRounding);
    EXPECT_NEAR(equal.wall_seconds, 3 * 4 * p + p - 1, 1e-9);
    EXPECT_EQ(PeakActivations("zero_bubble_h2", shape), 2 * p - 1);
    EXPECT_EQ(FormulasOf("zero_bubble_h2", shape, Costs(1, 1, 1)).span_bubble,
              0);
    const Bubbles longer =
        SimulatedBubbles("zero_bubble_h2", shape, Costs(3, 5, 2));
    const double idle = (p - 1) * (3 + 5 - 2 * 2), busy = 4 * p * 10;
    EXPECT_NEAR(longer.span_per_rank[0], idle / (busy + idle), kRounding);
  }
}

// Qi et al. 2024, section 6: each rank stores as much as 1F1B's first rank.
TEST(FormulasTest, ZeroBubbleVKeepsTheMemoryOfOneForwardOneBackward) {
  for (const int p : {4, 8}) {
    const ScheduleFacts facts = *Validate(*MakeSchedule("zbv", {p, 4 * p}));
    for (const int stages : facts.peak_activations)
      EXPECT_LE(stages, 2 * p);  // two stages are one micro-batch
  }
}

// DeepSeek-V3, table 2, for PP = 2p stages: (PP/2-1)(F&B+B-3W) and PP+1 stages'
// activations. With F = I = W and overlapping pairs, the last rank idles
// exactly this long; in order it idles less, since the ranks' pairs take
// equally long.
TEST(FormulasTest, DualPipeVAtThePapersSizes) {
  for (const int p : {4, 8}) {
    const ScheduleShape shape = {p, 2 * p + 2, 2};
    const auto most_idle = [&](const StageCosts& costs, double overlap) {
      const Bubbles bubbles =
          SimulatedBubbles("dualpipev", shape, costs, overlap);
      return bubbles.wall_seconds *
             *std::max_element(bubbles.wall_per_rank.begin(),
                               bubbles.wall_per_rank.end());
    };
    const auto papers = [&](const StageCosts& costs, double overlap) {
      return *FormulasOf("dualpipev", shape, costs, overlap).paper_idle_seconds;
    };
    EXPECT_EQ(papers(Costs(1, 1, 1), 1), p - 1);
    EXPECT_NEAR(most_idle(Costs(1, 1, 1), 1), p - 1, 1e-9);
    EXPECT_EQ(papers(Costs(1, 1, 1), 0), 2 * (p - 1));
    EXPECT_NEAR(most_idle(Costs(1, 1, 1), 0), p - 1, 1e-9);
    // For other costs it is an estimate, an upper bound if I >= F.
    EXPECT_LE(most_idle(Costs(3, 5, 2), 1), papers(Costs(3, 5, 2), 1));
    EXPECT_GE(most_idle(Costs(3, 5, 2), 1), 0.85 * papers(Costs(3, 5, 2), 1));
    EXPECT_EQ(PeakActivations("dualpipev", shape), (2 * p + 1) / 2.0);
  }
}

TEST(FormulasTest, PeakOfInterleaved) {
  EXPECT_EQ(PeakActivations("interleaved_1f1b", {4, 16, 2}),
            (2 * 3 + 4 + 1) / 2.0);
  EXPECT_EQ(
      *FormulasOf("interleaved_1f1b", {4, 16, 2}, kCosts[0]).peak_activations,
      5.5);
}

TEST(FormulasTest, NoneWhereNoneIsKnown) {
  EXPECT_FALSE(FormulasOf("mine.csv", {4, 8, 1}, kCosts[0]).wall_bubble);
  EXPECT_FALSE(
      FormulasOf("interleaved_1f1b", {4, 6, 2}, kCosts[0]).wall_bubble);
  EXPECT_FALSE(FormulasOf("zbv", {4, 8, 2}, kCosts[1]).wall_bubble);
  EXPECT_FALSE(FormulasOf("zero_bubble_h2", {4, 6, 1}, kCosts[0]).wall_bubble);
  EXPECT_FALSE(FormulasOf("dualpipev", {4, 8, 2}, kCosts[1]).wall_bubble);
  EXPECT_FALSE(FormulasOf("dualpipev", {4, 8, 2}, kCosts[0], 0.5).wall_bubble);
  EXPECT_FALSE(FormulasOf("zero_bubble_h1", {4, 3, 1}, kCosts[1]).wall_bubble);
}

}  // namespace
}  // namespace rankwise

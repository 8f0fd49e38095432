// The simulator against the papers: everything that has a closed form.

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
                         const StageCosts& costs) {
  const Schedule schedule = MakeSchedule(name, shape).value();
  return MeasureBubbles(
      Simulate(schedule, {.stages = {costs}, .link = {}}).value());
}

// In whole micro-batches, of the rank that keeps most.
double PeakActivations(const std::string& name, const ScheduleShape& shape) {
  const std::vector<int> peaks =
      Validate(MakeSchedule(name, shape).value())->peak_activations;
  return 1.0 * *std::max_element(peaks.begin(), peaks.end()) / shape.chunks;
}

// Calls check(shape) for p <= 6, m <= 18 and the v that the schedule takes.
template <typename Check>
void ForShapes(const std::string& name, Check check) {
  const int least_v = name == "zbv" ? 2 : 1;
  const int most_v = name == "interleaved_1f1b" ? 4 : least_v;
  for (int p = 1; p <= 6; ++p) {
    for (int m = 1; m <= 18; ++m) {
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
        const Bubbles bubbles = SimulatedBubbles(name, shape, costs);
        const ScheduleFormulas formulas = FormulasOf(name, shape, costs);
        if (formulas.wall_bubble) {
          EXPECT_NEAR(bubbles.wall, *formulas.wall_bubble, kRounding);
        }
        if (formulas.span_bubble) {
          EXPECT_NEAR(bubbles.span, *formulas.span_bubble, kRounding);
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

// The formulas are there wherever the papers claim them, with the papers'
// values.
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

// By the wall: (p-1)(F+B-2W) seconds, with B = I + W, where W fills idle time.
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
  EXPECT_FALSE(FormulasOf("zero_bubble_h1", {4, 3, 1}, kCosts[1]).wall_bubble);
}

}  // namespace
}  // namespace rankwise

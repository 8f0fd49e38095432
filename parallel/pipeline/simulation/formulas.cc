#include <algorithm>

#include "parallel/pipeline/simulation/simulate.h"

namespace rankwise {
namespace {

// Mean over ranks of k / (steps + k), k = 0 .. p-1 ranks away from the last:
// what 1F1B and its kin idle between their first and last action. Rank r starts
// r forwards after the first and ends r backwards before the end, so that its
// idle time is that of a pipeline of p - r ranks.
double MeanOverShorterPipelines(int p, double steps) {
  double sum = 0;
  for (int k = 0; k < p; ++k) sum += k / (steps + k);
  return sum / p;
}

ScheduleFormulas Naive(int p, int m) {
  // Rank r's part of the p*m turns is all but the first r half-turns each way.
  double sum = 0;
  for (int rank = 0; rank < p; ++rank) {
    const double turns = static_cast<double>(p) * m - rank;
    sum += (turns - m) / turns;
  }
  return {.span_bubble = sum / p,
          .wall_bubble = (p - 1.0) / p,
          .wall_text = "(p-1)/p",
          .peak_activations = 1};
}

// Huang et al. 2019, section 2.3; Narayanan et al. 2021, section 2.2.1.
ScheduleFormulas Flushed(int p, int m, int peak) {
  return {.span_bubble = MeanOverShorterPipelines(p, m),
          .wall_bubble = (p - 1.0) / (m + p - 1.0),
          .wall_text = "(p-1)/(m+p-1)",
          .peak_activations = peak};
}

// Narayanan et al. 2021, section 2.2.2.
ScheduleFormulas Interleaved(int p, int m, int v) {
  if (m % p != 0) return {};
  const double steps = static_cast<double>(v) * m;
  return {.span_bubble = MeanOverShorterPipelines(p, steps),
          .wall_bubble = (p - 1.0) / (steps + p - 1.0),
          .wall_text = "(p-1)/(v*m+p-1)",
          .peak_activations =
              std::min(2.0 * (p - 1) + (v - 1.0) * p + 1, steps) / v};
}

// Qi et al. 2023, table 1: (p-1)(F+I-W), where W fits into the time that 1F1B
// waits, W <= F and W <= I. A longer W leaves what no schedule of this
// placement avoids: (p-1)F until the last rank starts, (p-1)I until the first
// gradient is at the first rank.
ScheduleFormulas HandcraftedH1(int p, int m, const StageCosts& costs) {
  ScheduleFormulas formulas;
  formulas.peak_activations = std::min(p, m);
  if (m < p) return formulas;
  const double f = costs.forward_seconds, i = costs.input_grad_seconds,
               w = costs.weight_grad_seconds;
  const double idle = (p - 1) * std::max({f + i - w, f, i});
  const double seconds = m * (f + i + w) + idle;
  formulas.wall_bubble = seconds > 0 ? idle / seconds : 0;
  formulas.wall_text = w <= std::min(f, i)
                           ? "(p-1)(F+I-W) / (m(F+I+W) + (p-1)(F+I-W))"
                           : "(p-1)max(F,I) / (m(F+I+W) + (p-1)max(F,I))";
  return formulas;
}

// Qi et al. 2024, section 6: no bubble within a rank's span where F = I = W,
// once there are micro-batches enough to fill the warm-up.
ScheduleFormulas HandcraftedV(int p, int m, const StageCosts& costs) {
  ScheduleFormulas formulas;
  formulas.peak_activations = std::min(p, m);
  const bool equal = costs.forward_seconds == costs.input_grad_seconds &&
                     costs.forward_seconds == costs.weight_grad_seconds;
  if (!equal || m < 2 * p - 1) return formulas;
  formulas.span_bubble = 0;
  formulas.wall_bubble = (p - 1.0) / (6.0 * m + p - 1.0);
  formulas.wall_text = "(p-1)/(6m+p-1)";
  return formulas;
}

}  // namespace

ScheduleFormulas FormulasOf(const std::string& name, const ScheduleShape& shape,
                            const StageCosts& costs) {
  const int p = shape.num_ranks;
  const int m = shape.num_micro_batches;
  if (name == "naive") return Naive(p, m);
  if (name == "gpipe") return Flushed(p, m, m);
  if (name == "1f1b") return Flushed(p, m, std::min(p, m));
  if (name == "interleaved_1f1b") return Interleaved(p, m, shape.chunks);
  if (name == "zero_bubble_h1") return HandcraftedH1(p, m, costs);
  if (name == "zbv") return HandcraftedV(p, m, costs);
  return {};
}

}  // namespace rankwise

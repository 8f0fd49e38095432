// Extrapolates steps with many micro-batches from two shorter ones: between its
// first and last micro-batches a pipeline repeats a pattern, and each
// repetition adds the same time.
#ifndef RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_
#define RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plan/layout.h"

namespace rankwise::plan {

// Maximum number of micro-batches simulated action by action.
inline constexpr int64_t kLongestSimulatedStep = 256;

// Returns the number of micro-batches after which the intervals between the
// starts of successive micro-batches repeat. It can exceed the period of the
// schedule's pattern if a cycle of ranks that wait for each other contains
// several micro-batches. 1 if nothing repeats within a quarter of `starts`.
int64_t FindPeriod(const std::vector<double>& starts);

// Two steps of one layout with fewer micro-batches, and the line through them.
struct ShorterSteps {
  Layout fewer, more;
  double repetitions = 0;  // of their difference, from `more` to the long step

  double Extrapolate(double at_fewer, double at_more) const {
    return at_more + repetitions * (at_more - at_fewer);
  }
};

// Returns two steps whose micro-batches are congruent to those of `layout`
// modulo `period` and modulo pp: the pattern of interleaved_1f1b is pp
// micro-batches long. If the least common multiple is more than half of
// `longest`, they are congruent modulo only one of the two: pp with several
// chunks, else `period`. `longest` is raised to 16 pp, so that both steps reach
// the pattern; nullopt if `layout` has no more micro-batches than that.
std::optional<ShorterSteps> Shorten(const Layout& layout, int64_t longest,
                                    int64_t period = 1);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_

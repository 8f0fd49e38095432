// Steps of many micro-batches, from two shorter ones: between its first and
// its last micro-batches a pipeline repeats one pattern, and each repetition
// adds the same to the step's time.
#ifndef RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_
#define RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/plan/layout.h"

namespace rankwise::plan {

// Steps of up to this number of micro-batches are simulated action by action.
inline constexpr int64_t kLongestSimulatedStep = 256;

// The number of micro-batches after which the times between the starts of
// successive micro-batches repeat. It can exceed that of the schedule's
// pattern, where a cycle of ranks that wait for each other holds several
// micro-batches. 1 if nothing repeats within a quarter of `starts`.
int64_t FindPeriod(const std::vector<double>& starts);

// Two steps of one layout with fewer micro-batches, and the line through them.
struct ShorterSteps {
  Layout fewer, more;
  double repetitions = 0;  // of their difference, from `more` to the long step

  double Extrapolate(double at_fewer, double at_more) const {
    return at_more + repetitions * (at_more - at_fewer);
  }
};

// Both steps leave the same remainder of micro-batches as `layout`, divided by
// `period` and by pp: the pattern of interleaved_1f1b is pp micro-batches long.
// nullopt if `layout` has no more than `longest` micro-batches, which is raised
// to 16 pp, so that both steps reach the pattern.
std::optional<ShorterSteps> Shorten(const Layout& layout, int64_t longest,
                                    int64_t period = 1);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_LONG_STEP_H_

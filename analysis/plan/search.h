// Search for the layouts of a number of ranks that fit, and the fastest ones.
#ifndef RANKWISE_ANALYSIS_PLAN_SEARCH_H_
#define RANKWISE_ANALYSIS_PLAN_SEARCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/plan/layout.h"
#include "analysis/plan/step.h"

namespace rankwise::plan {

struct SearchConfig {
  int64_t ranks = 1;
  int64_t global_batch = 1;  // examples per step
  // from those in builders.h; interleaved_1f1b with 2 to 8 stages per rank
  std::vector<std::string> schedules = {"1f1b", "interleaved_1f1b",
                                        "zero_bubble_h1", "zbv"};
  std::vector<int> zero_stages = {0, 1, 2, 3};
  int64_t most_micro_batch = 32;  // examples
  size_t best = 10;               // number of meshes to return
};

struct SearchResult {
  int64_t ranks = 1;
  int64_t global_batch = 1;
  // the fastest layout of each mesh, fastest first
  std::vector<Step> best;
  int64_t layouts = 0;    // number that divide the model and the batch
  int64_t fit = 0;        // of these, by a lower bound of the fullest rank
  int64_t simulated = 0;  // the others exceed a bound of time or memory
  // Number of layouts that could not be simulated, some of which may be faster
  // than `best`, and the first one with the reason.
  int64_t left_out = 0;
  std::string why_left_out;
};

// Tries every divisor of the ranks along each axis (tp within a node, which it
// divides if there are several), every micro-batch that is a power of two, each
// schedule, ZeRO stage, recomputation and sequence parallelism.
// ResourceExhausted if none fits, with the smallest requirement, if no number
// of replicas divides the batch, or if none that fits can be simulated.
// FailedPrecondition as CheckReach.
absl::StatusOr<SearchResult> Search(StepModel& model,
                                    const SearchConfig& config);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_SEARCH_H_

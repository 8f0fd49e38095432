// Plans as text and as JSON.
#ifndef RANKWISE_ANALYSIS_PLAN_OUTPUT_H_
#define RANKWISE_ANALYSIS_PLAN_OUTPUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/plan/search.h"

namespace rankwise::plan {

// Returns two lines on the model and the cluster.
std::string SettingText(const Setting& setting);

// Returns a row per layout of one number of ranks, and the fastest layout with
// its lead, its limit and its command.
std::string SearchText(const SearchResult& result, const Setting& setting,
                       absl::string_view precision);

// Returns a bar per number of ranks: the best layout's tokens per second and
// rank, relative to the fewest ranks, with its MFU.
std::string ScalingChart(absl::Span<const SearchResult> results);

// Returns all results as JSON; docs/plan.md names the fields.
std::string PlanJson(absl::Span<const SearchResult> results,
                     const Setting& setting);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_OUTPUT_H_

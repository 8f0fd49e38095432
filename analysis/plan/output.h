// Plans as text and as JSON.
#ifndef RANKWISE_ANALYSIS_PLAN_OUTPUT_H_
#define RANKWISE_ANALYSIS_PLAN_OUTPUT_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "analysis/plan/search.h"

namespace rankwise::plan {

// The model and the cluster in two lines.
std::string SettingText(const Setting& setting);

// One number of ranks: a row per layout, and which is fastest, by how much,
// what limits it and how it is run.
std::string SearchText(const SearchResult& result, const Setting& setting,
                       absl::string_view precision);

// A bar per number of ranks: the best layout's tokens per second and rank,
// against those of the fewest ranks, with its MFU.
std::string ScalingChart(absl::Span<const SearchResult> results);

// Everything of both; docs/plan.md names the fields.
std::string PlanJson(absl::Span<const SearchResult> results,
                     const Setting& setting);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_OUTPUT_H_

// Published measurements of steps and memory, next to the planner's predictions
// for the same models, layouts and machines.
#ifndef RANKWISE_ANALYSIS_PLAN_PUBLISHED_H_
#define RANKWISE_ANALYSIS_PLAN_PUBLISHED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rankwise::plan {

struct PublishedRow {
  std::string name;    // model and measured quantity
  std::string layout;  // "pp 8 x tp 8, interleaved_1f1b x3, 64 x 1, recompute"
  double reported = 0;
  double predicted = 0;
  bool in_calculon = false;  // among the rows that Calculon validates with

  double error() const { return predicted / reported - 1; }
};

struct PublishedTable {
  std::string title;  // including source and unit
  std::vector<PublishedRow> rows;
};

// Returns "korthikanti2022", "narayanan2021".
std::vector<std::string> PublishedNames();

// Returns the tables of one paper (docs/plan.md, "Against published
// measurements"). InvalidArgument lists the known names.
absl::StatusOr<std::vector<PublishedTable>> Published(absl::string_view name);

// The mean of the absolute errors, and the largest.
double MeanError(absl::Span<const PublishedRow> rows);
double LargestError(absl::Span<const PublishedRow> rows);

std::string PublishedText(const PublishedTable& table);

}  // namespace rankwise::plan

#endif  // RANKWISE_ANALYSIS_PLAN_PUBLISHED_H_

// The metrics by which two sets of records are compared.

#ifndef ANALYSIS_COMPARE_METRIC_H_
#define ANALYSIS_COMPARE_METRIC_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace rankwise {

struct Metric {
  enum class Unit { kSeconds, kPerSecond, kBytes };

  absl::string_view name;
  Unit unit = Unit::kSeconds;
  // A part of the step: a change of less than kNegligibleStepShare of the step
  // is none, however large a share of the part it is.
  bool part_of_step = false;

  bool higher_is_better() const { return unit == Unit::kPerSecond; }
};

inline constexpr double kNegligibleStepShare = 0.01;

inline constexpr Metric kMetrics[] = {
    {"step_seconds", Metric::Unit::kSeconds, false},
    {"examples_per_second", Metric::Unit::kPerSecond, false},
    {"exposed_comm_seconds", Metric::Unit::kSeconds, true},
    {"data_wait_seconds", Metric::Unit::kSeconds, true},
    {"peak_bytes", Metric::Unit::kBytes, false},
    {"call_seconds", Metric::Unit::kSeconds, false},
};

// Requires a name of kMetrics.
const Metric& MetricNamed(absl::string_view name);

// "step_seconds,call_seconds" as their names; "" stands for all.
// InvalidArgument for one that does not exist, naming those that do.
absl::StatusOr<std::vector<std::string>> ParseMetrics(absl::string_view text);

// "12.3 ms", "1.23 GB", "640 /s".
std::string FormatValue(const Metric& metric, double value);

}  // namespace rankwise

#endif  // ANALYSIS_COMPARE_METRIC_H_

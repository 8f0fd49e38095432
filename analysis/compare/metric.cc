#include "analysis/compare/metric.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace rankwise {
namespace {

const Metric* Find(absl::string_view name) {
  const Metric* found = std::find_if(
      std::begin(kMetrics), std::end(kMetrics),
      [name](const Metric& metric) { return metric.name == name; });
  return found == std::end(kMetrics) ? nullptr : found;
}

struct Prefix {
  double factor;
  absl::string_view name;
};

// The value with the largest of `prefixes` that it reaches, else the last.
std::string Scaled(double value, absl::Span<const Prefix> prefixes) {
  for (const Prefix& prefix : prefixes) {
    if (value < prefix.factor && &prefix != &prefixes.back()) continue;
    return absl::StrFormat("%.4g %s", value / prefix.factor, prefix.name);
  }
  return "";
}

}  // namespace

const Metric& MetricNamed(absl::string_view name) {
  const Metric* metric = Find(name);
  assert(metric != nullptr);
  return *metric;
}

absl::StatusOr<std::vector<std::string>> ParseMetrics(absl::string_view text) {
  std::vector<std::string> known;
  for (const Metric& metric : kMetrics) known.emplace_back(metric.name);
  if (text.empty()) return known;
  std::vector<std::string> names = absl::StrSplit(text, ',');
  for (const std::string& name : names) {
    if (Find(name) != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--metrics=", text, ": there is no \"", name,
                     "\"; there are ", absl::StrJoin(known, ", ")));
  }
  return names;
}

std::string FormatValue(const Metric& metric, double value) {
  switch (metric.unit) {
    case Metric::Unit::kSeconds:
      return Scaled(value, {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}});
    case Metric::Unit::kBytes:
      return Scaled(value, {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}, {1, "B"}});
    case Metric::Unit::kPerSecond:
      break;
  }
  return absl::StrFormat("%.4g /s", value);
}

}  // namespace rankwise

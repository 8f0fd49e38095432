#include "analysis/number_text.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace rankwise {

std::string PercentText(double share) {
  return std::isnan(share) ? "-" : absl::StrFormat("%.1f %%", 100 * share);
}

std::string SignedPercentText(double share) {
  return std::isnan(share) ? "-" : absl::StrFormat("%+.1f %%", 100 * share);
}

std::string MillisecondsText(double seconds) {
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.3g", 1e3 * seconds);
}

std::string MillisecondsColumn(double seconds) {
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.2f", 1e3 * seconds);
}

}  // namespace rankwise

#include "analysis/ledger/expected_maximum.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <utility>

namespace rankwise {
namespace {

// All values in ascending order, with the sample that each is from.
std::vector<std::pair<double, size_t>> Merged(
    const std::vector<std::vector<double>>& samples) {
  std::vector<std::pair<double, size_t>> merged;
  for (size_t i = 0; i < samples.size(); ++i) {
    for (double value : samples[i]) merged.emplace_back(value, i);
  }
  std::sort(merged.begin(), merged.end());
  return merged;
}

}  // namespace

double ExpectedMaximum(const std::vector<std::vector<double>>& samples) {
  assert(!samples.empty());
  std::vector<double> below(samples.size(), 0);  // values up to the current one
  size_t unseen = samples.size();  // samples without a value up to it
  // Of the product of the distribution functions; in logarithms, as the first
  // that is not 0 may be too small for a double.
  double log_product = 0;
  for (const std::vector<double>& sample : samples) {
    assert(!sample.empty());
    log_product -= std::log(static_cast<double>(sample.size()));
  }
  double before = 0, expected = 0;
  for (const auto& [value, i] : Merged(samples)) {
    if (below[i]++ == 0) {
      --unseen;
    } else {
      log_product += std::log1p(1 / (below[i] - 1));
    }
    if (unseen > 0) continue;
    const double product = std::exp(log_product);
    expected += value * (product - before);
    before = product;
  }
  return expected;
}

}  // namespace rankwise

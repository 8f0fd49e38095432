#include "analysis/model_flops.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

namespace rankwise {

double ModelFlopsUtilization(const Cell& cell) {
  const double forward = cell.run.forward_flops_per_example;
  if (!(forward > 0) || !(cell.peak_tflops > 0)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const std::set<std::string> of_rank(cell.run.devices.begin(),
                                      cell.run.devices.end());
  const double devices =
      static_cast<double>(cell.run.world_size) *
      static_cast<double>(std::max<size_t>(1, of_rank.size()));
  return 3 * forward * cell.ExamplesPerSecond() /
         (devices * cell.peak_tflops * 1e12);
}

}  // namespace rankwise

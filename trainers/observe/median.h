// The median, where a summary of a run needs one.
#ifndef RANKWISE_TRAINERS_OBSERVE_MEDIAN_H_
#define RANKWISE_TRAINERS_OBSERVE_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace rankwise {

// Of an even number of values the mean of the middle two; NaN of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle]
                                : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_OBSERVE_MEDIAN_H_

#include "comm_bench/timing/any_stopped.h"

#include <algorithm>
#include <vector>

namespace rankwise::comm_bench {

bool AnyStopped(Control& control, const std::atomic<bool>* stop) {
  const double own = stop != nullptr && *stop ? 1 : 0;
  const std::vector<std::vector<double>> all = control.Gather({&own, 1});
  return std::any_of(all.begin(), all.end(),
                     [](const auto& rank) { return rank[0] != 0; });
}

}  // namespace rankwise::comm_bench

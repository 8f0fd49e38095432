// A layout's steps, simulated one by one from what was recorded.

#ifndef ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_
#define ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/step_samples.h"

namespace rankwise {

struct SimulatedLayout {
  std::vector<std::vector<StepSample>> runs;  // per run that was recorded
  int64_t waiting = 1;  // ranks or replicas that wait for the slowest
  double peak_bytes = 0;
  bool extrapolated = false;
  std::vector<std::string> assumptions;
};

// Which end of a cost's 95 % interval.
enum class CostSide { kLow, kMiddle, kHigh };

// The cost of one collective among `world_size` ranks, asked for once per size.
// Not thread-safe.
class CallCosts {
 public:
  // `network` outlives it.
  CallCosts(const NetworkModel& network, absl::string_view collective,
            int64_t world_size)
      : network_(network), collective_(collective), world_size_(world_size) {}

  // Fails as NetworkModel::Estimate does.
  absl::Status Prepare(double bytes);

  // Of a size that was prepared; 0 for one rank.
  double Seconds(double bytes, CostSide side) const;

  // One of the sizes lies beyond what was measured.
  bool extrapolated() const { return extrapolated_; }

 private:
  const NetworkModel& network_;
  const std::string collective_;
  const int64_t world_size_;
  std::map<double, CostEstimate> estimates_;  // by bytes
  bool extrapolated_ = false;
};

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_SIMULATED_LAYOUT_H_

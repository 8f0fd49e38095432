// Steps of ddp at world sizes and batches that need not have been run.

#ifndef ANALYSIS_PREDICTION_DDP_LAYOUT_H_
#define ANALYSIS_PREDICTION_DDP_LAYOUT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "analysis/cost_model/network_model.h"
#include "analysis/prediction/layout.h"
#include "analysis/prediction/recorded_ddp.h"
#include "analysis/prediction/simulated_layout.h"

namespace rankwise {

// Where a layout's computing comes from.
struct ComputeSource {
  std::vector<const RecordedDdp*> runs;  // repetitions of one cell
  // Of the runs' parts, for a batch that was not run.
  ComputeParts factors = {1, 1, 1};
  bool extrapolated = false;
  std::vector<std::string> assumptions;
};

// The runs whose computing is most like that of `world_size` ranks with `batch`
// examples each: those of as many ranks; else of the most ranks below; else of
// the fewest. At one world size, runs that communicate come before those with
// --skip_communication. A batch between or beyond those recorded follows a line
// through them; FailedPrecondition, with the command, where there is only one.
absl::StatusOr<ComputeSource> FindCompute(const DdpRecordings& recordings,
                                          double batch, int64_t world_size);

// Fails as FindCompute and the network's Estimate do, and where no run of ddp
// was recorded.
absl::StatusOr<SimulatedLayout> SimulateDdpLayout(
    const DdpRecordings& recordings, const Layout& layout,
    const NetworkModel& network);

}  // namespace rankwise

#endif  // ANALYSIS_PREDICTION_DDP_LAYOUT_H_

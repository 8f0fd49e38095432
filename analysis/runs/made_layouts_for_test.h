// Synthetic record files of a study that compares layouts of ranks on a machine
// with a known bottleneck.
#ifndef RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_
#define RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// A model with 50 MB of parameters and 2 ms of computation per example, on 4
// ranks.
struct LayoutStudyConfig {
  double link_bytes_per_second = 1e10;
  double slower = 0;  // relative extra computation time of rank 2
  // Memory of a rank. If 0, strong scaling with a global batch of 64; otherwise
  // every layout, and single, uses the largest batch that fits.
  int64_t memory_bytes = 0;
  uint64_t seed = 0;
};

// Writes 5 runs each of single, ddp, fsdp zero3, tensor_parallel and a pipeline
// into the existing folder `dir`. A step's duration is the layout's
// computation, communication and waiting (all of it exposed), by the formulas
// next to each layout, with 1 % of noise on each rank's computation, and
// another 1 % between runs. Returns the true examples/s by Cell::Trainer.
absl::StatusOr<std::map<std::string, double>> WriteLayoutStudy(
    const std::string& dir, const LayoutStudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_

// The record files of a study that nobody ran, which compares layouts of ranks
// on a machine whose bottleneck is known.
#ifndef RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_
#define RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace rankwise {

// A model of 50 MB of parameters that computes an example in 2 ms, on 4 ranks.
struct LayoutStudyConfig {
  double link_bytes_per_second = 1e10;
  double slower = 0;  // share that rank 2 computes longer in every step
  // Of a rank: 0: strong scaling of a global batch of 64; else the largest
  // batch that each layout holds in it, and single too.
  int64_t memory_bytes = 0;
  uint64_t seed = 0;
};

// Writes 5 runs each of single, ddp, fsdp zero3, tensor_parallel and a pipeline
// into the folder `dir`, which must exist. Steps take what the layout has to
// compute, communicate and wait for (all of it exposed) by the formulas that
// are next to each layout, with 1 % of noise on what each rank computes, and
// another 1 % from run to run. Returns the true examples/s by Cell::Trainer.
absl::StatusOr<std::map<std::string, double>> WriteLayoutStudy(
    const std::string& dir, const LayoutStudyConfig& config);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_RUNS_MADE_LAYOUTS_FOR_TEST_H_

// The largest batch whose peak memory stays under a limit, from few probes.

#ifndef ANALYSIS_STUDY_MEMORY_SEARCH_H_
#define ANALYSIS_STUDY_MEMORY_SEARCH_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

struct MemorySearchConfig {
  int64_t limit_bytes = 0;
  int64_t multiple = 8;       // of which the batch is one
  int64_t second_batch = 64;  // probed beside the smallest
  int64_t largest_batch = 1 << 20;
  int max_probes = 8;
  // A batch that is this close to what memory allows is large enough.
  double tolerance = 0.05;
};

struct MemoryProbe {
  int64_t batch = 0;
  int64_t peak_bytes = 0;
};

struct MemoryFit {
  int64_t batch = 0;
  int64_t peak_bytes = 0;           // as probed with that batch
  std::vector<MemoryProbe> probes;  // by batch
};

// Memory is taken to grow linearly with the batch: two probes give the line,
// and the batch that it allows is probed too, so that the answer has been seen
// to fit. Where the line was wrong, the search goes on between what fitted and
// what did not. `probe` says the peak memory of a batch. OutOfRange where
// not even the smallest batch fits; fails where `probe` does.
absl::StatusOr<MemoryFit> LargestBatch(
    const MemorySearchConfig& config,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& probe);

// The batch of `fit`, or, where a whole run with it needs more than the limit,
// one so much smaller as the probes say that this costs, until `whole_run` says
// a peak under the limit; peak_bytes is then that peak. OutOfRange where none
// is left; fails where `whole_run` does.
absl::StatusOr<MemoryFit> ConfirmBatch(
    const MemorySearchConfig& config, MemoryFit fit,
    const std::function<absl::StatusOr<int64_t>(int64_t batch)>& whole_run);

}  // namespace rankwise

#endif  // ANALYSIS_STUDY_MEMORY_SEARCH_H_

// The progress of a run and the per-rank state in a checkpoint: the state of
// each rank's random generator, and its sums over the epoch so far.
#ifndef RANKWISE_TRAINERS_RESUME_PROGRESS_H_
#define RANKWISE_TRAINERS_RESUME_PROGRESS_H_

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/checkpoint_reader.h"
#include "trainers/loop/worker.h"

namespace rankwise {

struct Progress {
  int64_t step = 0;       // completed optimizer steps
  int64_t epoch = 1;      // current epoch
  int64_t position = 0;   // completed micro-batches of the epoch
  double epoch_loss = 0;  // this rank's sum over the epoch's examples so far
  int64_t epoch_examples = 0;  // of this rank
  double epoch_seconds = 0;
  // Time of the checkpoint that this was read from; NaN if unknown.
  double saved_unix_seconds = std::numeric_limits<double>::quiet_NaN();
};

// Adds the per-rank state of all data-parallel ranks to the first rank's
// checkpoint, and an identifier of this save to every rank's. Collective.
absl::Status AddProgress(const Progress& progress, const Worker& worker,
                         Checkpoint& checkpoint);

// Returns the progress in the checkpoint, with this rank's sums, and restores
// this rank's random generator. If the checkpoint has no generator of this
// data-parallel rank, or one of another kind of device, it is seeded from
// `seed`, the step and the rank. The sums of ranks that no longer exist are
// added to the first rank's.
absl::StatusOr<Progress> RestoreProgress(CheckpointReader& reader,
                                         const Worker& worker, uint64_t seed);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_PROGRESS_H_

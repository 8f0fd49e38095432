// How far a run is, and what each of its ranks has of its own, in a checkpoint:
// the state of its random generator, and its sums over the epoch so far.
#ifndef RANKWISE_TRAINERS_RESUME_PROGRESS_H_
#define RANKWISE_TRAINERS_RESUME_PROGRESS_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "torch/types.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/checkpoint/checkpoint_reader.h"
#include "trainers/loop/worker.h"

namespace rankwise {

struct Progress {
  int64_t step = 0;       // optimizer steps done
  int64_t epoch = 1;      // the epoch in progress
  int64_t position = 0;   // its micro-batches done
  double epoch_loss = 0;  // this rank's sum over the epoch's examples so far
  int64_t epoch_examples = 0;  // of this rank
  double epoch_seconds = 0;
  // When the checkpoint was made that this is of; NaN: not known.
  double saved_unix_seconds = std::numeric_limits<double>::quiet_NaN();
};

// Every rank's `tensor`, by rank; only this one without peers. Collective, on
// the group's device.
absl::StatusOr<std::vector<torch::Tensor>> GatherRanks(
    const Worker& worker, const torch::Tensor& tensor);

// Adds what each data-parallel rank has of its own to the first rank's
// checkpoint, and to all an identifier of this save. Collective.
absl::Status AddProgress(const Progress& progress, const Worker& worker,
                         Checkpoint& checkpoint);

// The progress in the checkpoint, with this rank's sums; its random generator
// continues where it was. That of a data-parallel rank that the checkpoint does
// not have, or has of another kind of device, is seeded from `seed`, the step
// and the rank. The sums of ranks that no longer exist are added to the first
// rank's.
absl::StatusOr<Progress> RestoreProgress(CheckpointReader& reader,
                                         const Worker& worker, uint64_t seed);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_PROGRESS_H_

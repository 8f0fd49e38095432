// Lets one rank read the headers of a checkpoint's files for all ranks;
// otherwise each of N ranks that resume from N files would open N.
#ifndef RANKWISE_TRAINERS_RESUME_SHARED_HEADERS_H_
#define RANKWISE_TRAINERS_RESUME_SHARED_HEADERS_H_

#include "absl/status/statusor.h"
#include "trainers/checkpoint/checkpoint_reader.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Returns the first rank's `headers` on all ranks. Collective. Fails as the
// communicator does.
absl::StatusOr<CheckpointHeaders> ShareHeaders(const CheckpointHeaders& headers,
                                               const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_SHARED_HEADERS_H_

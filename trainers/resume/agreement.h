// Agreement of ranks on failures, so that no rank waits in its next collective
// for one that has failed.
#ifndef RANKWISE_TRAINERS_RESUME_AGREEMENT_H_
#define RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Returns OK if `mine` is OK on every rank; otherwise the same error on all
// ranks, that of the first rank that failed: "ATTEMPTED failed on rank 1: ...",
// with the code and the message (at most 1,000 bytes) of its status.
// Collective: no rank returns before all call. Fails as the communicator does.
absl::Status AgreeOnSuccess(absl::string_view attempted,
                            const absl::Status& mine, const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

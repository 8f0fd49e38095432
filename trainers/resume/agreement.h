// How ranks learn that one of them has failed, where the others would wait for
// it in their next collective.
#ifndef RANKWISE_TRAINERS_RESUME_AGREEMENT_H_
#define RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Collective; of one rank, `mine`. Ok where every rank's `mine` is; else the
// same on all ranks: "ATTEMPTED failed on rank 1: ...", of the first that
// failed, with the code and the message (of which at most 1,000 bytes) of its
// status. No rank returns before all have called it. Fails as the communicator
// does.
absl::Status AgreeOnSuccess(absl::string_view attempted,
                            const absl::Status& mine, const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

// How ranks learn that one of them has failed, so that the others do not wait
// for it in their next collective.
#ifndef RANKWISE_TRAINERS_RESUME_AGREEMENT_H_
#define RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainers/loop/worker.h"

namespace rankwise {

// Ok if `mine` is ok on every rank; else the same error on all ranks, of the
// first that failed: "ATTEMPTED failed on rank 1: ...", with the code and the
// message (at most 1,000 bytes) of its status. Collective: no rank returns
// before all have called it. Fails as the communicator does.
absl::Status AgreeOnSuccess(absl::string_view attempted,
                            const absl::Status& mine, const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_RESUME_AGREEMENT_H_

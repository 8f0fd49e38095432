// When the buffer of a send is free again, without asking the backend: Gloo
// tells only whoever waits.
#ifndef RANKWISE_PARALLEL_PIPELINE_SEND_RELEASE_H_
#define RANKWISE_PARALLEL_PIPELINE_SEND_RELEASE_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "parallel/pipeline/actions.h"

namespace rankwise {

// Value (as numbered by Values) that `rank` receives -> values that `rank` sent
// and that have then certainly arrived: their receiver needed them for an
// action that comes before the sending of the first in its list. Waiting for
// these sends does not block. Sends that nothing received vouches for are in
// no list.
using SendReleases = std::unordered_map<size_t, std::vector<size_t>>;

SendReleases FindSendReleases(const Schedule& schedule, int rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SEND_RELEASE_H_

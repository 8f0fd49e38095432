// What an executor reads off a schedule: in which order one host thread starts
// the actions of all ranks, and when the buffer of a send is free again.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ISSUE_ORDER_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ISSUE_ORDER_H_

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

// The rank of each action in turn: every rank's list in its own order, and an
// action that needs what another stage makes after the sending of it. The order
// is that of the starts where F, I and W take as long, B twice as long, and
// messages nothing, so that no device is left without work while the host
// issues that of another. Shorter than all actions where ranks wait for each
// other in a cycle; linear but for sorting.
std::vector<int> IssueOrder(const Schedule& schedule);

// Value (as numbered by Values) that `rank` receives -> values that `rank` sent
// and that have then certainly arrived: their receiver needed them for an
// action that comes before the sending of the first in its list. Waiting for
// these sends does not block, and nobody has to ask the backend: Gloo tells
// only whoever waits. Sends that nothing received vouches for are in no list.
using SendReleases = std::unordered_map<size_t, std::vector<size_t>>;

SendReleases FindSendReleases(const Schedule& schedule, int rank);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_ISSUE_ORDER_H_

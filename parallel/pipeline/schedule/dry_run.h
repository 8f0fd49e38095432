// What can be read off a schedule: an order in which its actions can run, which
// the validator and the simulator share; the order in which one host thread
// starts those of all ranks; and when the buffer of a send is free again.
#ifndef RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_
#define RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_

#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "parallel/pipeline/schedule/actions.h"

namespace rankwise {

// Calls visit(rank, i) for every actions[rank][i], each after those before it
// on its rank and after the making of what it needs from another stage; where
// the schedule has communication, after the sending of it. Returns, per rank,
// how many actions could be visited: all, unless ranks wait for each other in a
// cycle. Takes time linear in the number of actions. The schedule's stages,
// micro-batches and ranks must be in range.
std::vector<size_t> DryRun(
    const Schedule& schedule,
    const std::function<void(int rank, size_t position)>& visit);

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

#endif  // RANKWISE_PARALLEL_PIPELINE_SCHEDULE_DRY_RUN_H_

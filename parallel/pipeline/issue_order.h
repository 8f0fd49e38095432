// In which order one host thread starts the actions of all ranks.
#ifndef RANKWISE_PARALLEL_PIPELINE_ISSUE_ORDER_H_
#define RANKWISE_PARALLEL_PIPELINE_ISSUE_ORDER_H_

#include <vector>

#include "parallel/pipeline/actions.h"

namespace rankwise {

// The rank of each action in turn: every rank's list in its own order, and an
// action that needs what another stage makes after the sending of it. The order
// is that of the starts where F, I and W take as long, B twice as long, and
// messages nothing, so that no device is left without work while the host
// issues that of another. Shorter than all actions where ranks wait for each
// other in a circle; linear but for sorting.
std::vector<int> IssueOrder(const Schedule& schedule);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_ISSUE_ORDER_H_

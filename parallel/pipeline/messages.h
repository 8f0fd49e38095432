// The part of Validate that checks sends and receives.
#ifndef RANKWISE_PARALLEL_PIPELINE_MESSAGES_H_
#define RANKWISE_PARALLEL_PIPELINE_MESSAGES_H_

#include "absl/status/status.h"
#include "parallel/pipeline/action_table.h"
#include "parallel/pipeline/actions.h"

namespace rankwise {

// Every value that another rank needs is sent and received once, no other is,
// and two ranks issue what passes between them in the same order, one by one:
// for backends that match messages by their order (NCCL). InvalidArgument
// otherwise.
absl::Status CheckMessages(const Schedule& schedule, const ActionTable& table);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_PIPELINE_MESSAGES_H_

// One place where exceptions of the training step become a message for a
// person.
#ifndef RANKWISE_TRAINERS_FAILURE_H_
#define RANKWISE_TRAINERS_FAILURE_H_

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "trainers/worker.h"

namespace rankwise {

// ResourceExhausted with what was asked for and the flags that make it smaller,
// if memory ran out; otherwise, with several ranks,
// Communicator::ExplainFailure's answer; otherwise the exception's first line.
absl::Status ExplainTrainingFailure(absl::string_view attempted,
                                    const std::exception& error,
                                    const Worker& worker);

// The same for what a loader reports: ResourceExhausted if memory ran out, else
// `status` as it is.
absl::Status ExplainLoadingFailure(const absl::Status& status,
                                   const Worker& worker);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_FAILURE_H_

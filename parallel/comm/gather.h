// Gathers small tensors of all ranks to host memory.
#ifndef RANKWISE_PARALLEL_COMM_GATHER_H_
#define RANKWISE_PARALLEL_COMM_GATHER_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Returns every rank's `tensor` on the host, in order of place in the group;
// without a process group, this rank's alone. Collective: shapes and types must
// agree, devices may differ. Errors name the operation `attempted`.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(
    const at::Tensor& tensor, const Group& group,
    absl::string_view attempted = "all_gather");

// The same over all ranks of `comm`; with nullptr, for this rank alone.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(const at::Tensor& tensor,
                                                     Communicator* comm);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GATHER_H_

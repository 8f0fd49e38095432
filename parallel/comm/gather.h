// Gathers small tensors of all ranks to host memory.
#ifndef RANKWISE_PARALLEL_COMM_GATHER_H_
#define RANKWISE_PARALLEL_COMM_GATHER_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Returns every rank's `tensor` on the host, ordered by place in the group;
// without a process group only this rank's. Collective: shapes and types must
// agree, devices may differ. An error names the operation `attempted`.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(
    const at::Tensor& tensor, const Group& group,
    absl::string_view attempted = "all_gather");

// The same for all ranks of `comm`; if it is null, for this rank alone.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(const at::Tensor& tensor,
                                                     Communicator* comm);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GATHER_H_

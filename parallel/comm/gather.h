// Small tensors of all ranks on the host.
#ifndef RANKWISE_PARALLEL_COMM_GATHER_H_
#define RANKWISE_PARALLEL_COMM_GATHER_H_

#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/comm/group.h"

namespace rankwise {

// Every rank's `tensor`, by place in the group, on the host; `tensor` alone
// without a process group. Collective; shapes and types must agree, and may be
// of any device. A failure is explained as one of `attempted`.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(
    const at::Tensor& tensor, const Group& group,
    absl::string_view attempted = "all_gather");

// The same of all ranks of `comm`; null: this one alone.
absl::StatusOr<std::vector<at::Tensor>> GatherToHost(const at::Tensor& tensor,
                                                     Communicator* comm);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_COMM_GATHER_H_

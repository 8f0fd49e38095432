#include "parallel/comm/gather.h"

#include <exception>
#include <utility>

#include "ATen/ops/empty_like.h"
#include "parallel/comm/communicator.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {

absl::StatusOr<std::vector<at::Tensor>> GatherToHost(
    const at::Tensor& tensor, const Group& group, absl::string_view attempted) {
  if (group.process_group() == nullptr)
    return std::vector<at::Tensor>{tensor.cpu()};
  try {
    std::vector<at::Tensor> own = {tensor.to(group.communicator()->device())};
    std::vector<std::vector<at::Tensor>> all(1);
    for (int place = 0; place < group.size(); ++place)
      all[0].push_back(at::empty_like(own[0]));
    group.process_group()->allgather(all, own)->wait();
    for (at::Tensor& each : all[0]) each = each.cpu();
    return std::move(all[0]);
  } catch (const std::exception& error) {
    return group.communicator()->ExplainFailure(attempted, error);
  }
}

absl::StatusOr<std::vector<at::Tensor>> GatherToHost(const at::Tensor& tensor,
                                                     Communicator* comm) {
  return GatherToHost(tensor, comm == nullptr ? Group() : comm->world());
}

}  // namespace rankwise

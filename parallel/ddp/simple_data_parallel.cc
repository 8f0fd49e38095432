#include "parallel/ddp/simple_data_parallel.h"

#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "ATen/Functions.h"
#include "ATen/core/grad_mode.h"
#include "absl/status/status.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/verify_model.h"
#include "parallel/device/graph.h"
#include "parallel/device/moment.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/nn/module.h"

namespace rankwise {
namespace {

using torch::Tensor;

// All gradients in one row. Missing ones become zeros.
Tensor FlattenGradients(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> pieces;
  for (const Tensor& parameter : parameters) {
    Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = at::zeros_like(parameter);
    TORCH_CHECK(!gradient.is_sparse(),
                "SimpleDataParallel reduces dense gradients only; use "
                "DistributedDataParallel for sparse embeddings");
    pieces.push_back(gradient.reshape({-1}));
  }
  return at::cat(pieces);
}

void UnflattenIntoGradients(const Tensor& row,
                            const std::vector<Tensor>& parameters) {
  int64_t offset = 0;
  for (const Tensor& parameter : parameters) {
    const Tensor piece = row.narrow(0, offset, parameter.numel());
    parameter.mutable_grad().copy_(piece.view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimpleDataParallel>> SimpleDataParallel::Create(
    torch::nn::Module& module, Communicator& communicator,
    bool skip_communication) {
  try {
    if (absl::Status s = VerifyModel(module, communicator); !s.ok()) return s;
    BroadcastFromRankZero(ModelParameters(module), communicator);
    BroadcastFromRankZero(ModelBuffers(module), communicator);
  } catch (const std::exception& error) {
    return communicator.ExplainFailure("setting up SimpleDataParallel", error);
  }
  std::unique_ptr<SimpleDataParallel> simple(
      new SimpleDataParallel(module, communicator, skip_communication));
  if (!simple->groups_.empty()) return simple;
  return absl::InvalidArgumentError(
      "SimpleDataParallel has nothing to do: the model has no parameter that "
      "requires a gradient");
}

SimpleDataParallel::SimpleDataParallel(torch::nn::Module& module,
                                       Communicator& communicator,
                                       bool skip_communication)
    : module_(module),
      communicator_(communicator),
      skip_communication_(skip_communication) {
  std::map<c10::ScalarType, std::vector<Tensor>> by_dtype;
  for (const NamedTensor& item : ModelParameters(module)) {
    if (!item.tensor.requires_grad()) continue;
    by_dtype[item.tensor.scalar_type()].push_back(item.tensor);
  }
  for (auto& [dtype, parameters] : by_dtype) {
    groups_.push_back(std::move(parameters));
  }
}

void SimpleDataParallel::BeforeForward() {
  step_syncs_ = sync_;
  if (buffers_stale_ && !skip_communication_)
    BroadcastFromRankZero(ModelBuffers(module_), communicator_);
  buffers_stale_ = step_syncs_;
}

void SimpleDataParallel::AfterBackward() {
  exposed_ = 0;
  if (!step_syncs_) return;
  at::NoGradGuard no_grad;
  const bool captured = IsCapturing(communicator_.device());
  for (const std::vector<Tensor>& parameters : groups_) {
    std::vector<Tensor> row{FlattenGradients(parameters)};
    if (skip_communication_) {
      UnflattenIntoGradients(row[0], parameters);
      continue;
    }
    std::optional<Moment> start;
    if (!captured) start.emplace(communicator_.device());
    communicator_.process_group()->allreduce(row)->wait();  // the sum
    row[0].div_(communicator_.world_size());                // the mean
    UnflattenIntoGradients(row[0], parameters);
    if (captured) continue;
    exposed_ += LaterSeconds(*std::move(start), Moment(communicator_.device()));
  }
}

std::vector<int64_t> SimpleDataParallel::bucket_bytes() const {
  std::vector<int64_t> bytes;
  for (const std::vector<Tensor>& parameters : groups_) {
    bytes.push_back(0);
    for (const Tensor& parameter : parameters) {
      bytes.back() += static_cast<int64_t>(parameter.nbytes());
    }
  }
  return bytes;
}

}  // namespace rankwise

#include "trainers/resume/run_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// A tensor of this rank that belongs to a parameter or buffer.
struct StateTensor {
  std::string prefix;  // "model.", "optimizer.exp_avg."
  std::string owner;   // the parameter's name in the model
  torch::Tensor tensor;
};

// Returns nullptr if not found, and for scalars, which are never divided.
template <typename Value>
const Value* Find(const std::map<std::string, Value>& values,
                  const StateTensor& state) {
  const auto found = values.find(state.owner);
  return found == values.end() || state.tensor.dim() == 0 ? nullptr
                                                          : &found->second;
}

std::vector<StateTensor> ModelTensors(const Model& model,
                                      const ShardedState& sharded) {
  std::vector<StateTensor> tensors;
  for (const auto& entry : model.named_parameters()) {
    const auto shard = sharded.shards.find(entry.key());
    const torch::Tensor& here =
        shard == sharded.shards.end() ? entry.value() : shard->second.rows;
    tensors.push_back({kModelPrefix, entry.key(), here.detach()});
  }
  for (const auto& entry : model.named_buffers())
    tensors.push_back({kModelPrefix, entry.key(), entry.value()});
  return tensors;
}

// "exp_avg.fc1.weight" is optimizer state of fc1.weight.
std::vector<StateTensor> OptimizerTensors(const Optimizer& optimizer) {
  std::vector<StateTensor> tensors;
  for (auto& [name, tensor] : optimizer.State()) {
    const size_t dot = name.find('.') + 1;
    tensors.push_back({absl::StrCat("optimizer.", name.substr(0, dot)),
                       name.substr(dot), tensor});
  }
  return tensors;
}

// Checkpoints hold a tied weight once, under its owner's name.
std::string OwnersName(const Model& model, const std::string& name) {
  for (const TiedWeight& copy : model.copies()) {
    if (name == copy.copy_name) return copy.name;
  }
  return name;
}

// Returns `state` as a block of rows of the parameter, or of this rank's tp
// part of the parameter.
TensorBlock RowsOf(const StateTensor& state, const ShardedState& sharded) {
  TensorBlock block{.name = state.prefix + state.owner,
                    .values = state.tensor,
                    .offsets = std::vector<int64_t>(state.tensor.dim(), 0),
                    .whole_shape = state.tensor.sizes().vec()};
  if (const Shard* shard = Find(sharded.shards, state)) {
    block.offsets[0] = shard->begin;
    block.whole_shape[0] = shard->whole_rows;
  }
  return block;
}

// Returns `part`, rows of this rank's tp part, as blocks of the whole weight.
std::vector<TensorBlock> BlocksOf(const TensorBlock& part,
                                  const Division& division,
                                  const TensorParallel& tp) {
  const auto dim = static_cast<size_t>(division.dim);
  const int64_t first = part.offsets[dim];
  const int64_t last = first + part.values.size(division.dim);
  std::vector<TensorBlock> blocks;
  for (const DivisionPiece& piece : PiecesOf(division, tp)) {
    const int64_t begin = std::max(piece.here, first);
    const int64_t end = std::min(piece.here + piece.size, last);
    if (begin >= end) continue;
    TensorBlock& block = blocks.emplace_back(part);
    block.values = part.values.narrow(division.dim, begin - first, end - begin);
    block.offsets[dim] = piece.begin + begin - piece.here;
    block.whole_shape[dim] = division.size();
  }
  return blocks;
}

// Returns all rows, on every rank of the group.
torch::Tensor GatherRows(const Shard& shard, const Group& group) {
  const at::NoGradGuard no_grad;
  const TensorParallel line = {.group = group};
  std::vector<int64_t> pad(2 * shard.rows.dim(), 0);  // from the last dimension
  pad.back() = PartSize(shard.whole_rows, line) - shard.rows.size(0);
  return GatherFromRanks(at::constant_pad_nd(shard.rows.detach(), pad), 0,
                         shard.whole_rows, line);
}

}  // namespace

bool SavesState(const Worker& worker, const ShardedState& sharded) {
  if (sharded.shards.empty()) return worker.is_of_first_copy(worker.env.rank);
  return absl::c_any_of(sharded.group.ranks(), [&](int rank) {
    return worker.is_of_first_copy(rank);
  });
}

std::vector<HeldBlock> HeldBlocks(const Worker& worker, const Model& model,
                                  const Optimizer& optimizer,
                                  const ShardedState& sharded) {
  std::vector<StateTensor> tensors = ModelTensors(model, sharded);
  absl::c_move(OptimizerTensors(optimizer), std::back_inserter(tensors));
  std::vector<HeldBlock> held;
  for (const StateTensor& state : tensors) {
    const Division* division = Find(model.divisions(), state);
    const bool first = Find(sharded.shards, state) != nullptr
                           ? SavesState(worker, sharded)
                           : worker.is_of_first_copy(worker.env.rank);
    const std::string owner = OwnersName(model, state.owner);
    const bool saved = first && owner == state.owner &&
                       (division != nullptr || worker.coordinate("tp") == 0);
    TensorBlock rows = RowsOf(state, sharded);
    rows.name = state.prefix + owner;
    if (rows.values.numel() == 0) continue;
    const std::vector<TensorBlock> blocks =
        division == nullptr
            ? std::vector<TensorBlock>{std::move(rows)}
            : BlocksOf(rows, *division, model.parallel().tensor);
    for (const TensorBlock& block : blocks) held.push_back({block, saved});
  }
  return held;
}

absl::StatusOr<std::vector<TensorSource>> WholeTensors(
    const Worker& worker, const Model& model, const ShardedState& sharded) {
  const TensorParallel& tp = model.parallel().tensor;
  std::vector<TensorSource> sources;
  for (const StateTensor& state : ModelTensors(model, sharded)) {
    if (OwnersName(model, state.owner) != state.owner) continue;
    ASSIGN_OR_RETURN(TensorSource source, SourceOf(state.owner, state.tensor));
    const Shard* shard = Find(sharded.shards, state);
    const Division* division = Find(model.divisions(), state);
    if (shard != nullptr) source.entry.shape[0] = shard->whole_rows;
    if (division != nullptr)
      source.entry.shape[static_cast<size_t>(division->dim)] = division->size();
    source.values = [=, &sharded, &worker, tensor = state.tensor] {
      torch::Tensor whole =
          shard == nullptr ? tensor : GatherRows(*shard, sharded.group);
      const bool first = worker.is_of_first_copy(worker.env.rank);
      return division == nullptr || !first ? whole
                                           : WholeOf(whole, *division, tp);
    };
    sources.push_back(std::move(source));
  }
  RETURN_IF_ERROR(AssignOffsets(sources));
  return sources;
}

}  // namespace rankwise

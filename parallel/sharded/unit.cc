#include "parallel/sharded/unit.h"

#include <algorithm>
#include <utility>

#include "ATen/core/LegacyTypeDispatch.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/_foreach_copy.h"
#include "ATen/ops/as_strided.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/zeros.h"
#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "c10/core/Allocator.h"
#include "c10/core/DeviceGuard.h"
#include "c10/util/Exception.h"

namespace rankwise {
namespace {

// Returns the memory of a tensor with contiguous rows as [numel].
torch::Tensor FlatView(const torch::Tensor& tensor) {
  return at::as_strided(tensor.detach(), {tensor.numel()}, {1});
}

// Returns a tensor shaped like `tensor` that throws `error` when accessed.
torch::Tensor WithoutMemory(const torch::Tensor& tensor,
                            const std::string& error) {
  const auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(),
      c10::DataPtr(nullptr, tensor.device()), /*allocator=*/nullptr,
      /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(error);
  torch::Tensor result = at::empty({0}, tensor.options().requires_grad(false));
  result.unsafeGetTensorImpl()->set_storage_keep_dtype(c10::Storage(storage));
  result.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return result;
}

// Returns the part of a buffer line that belongs to the parameter's rows, in
// their shape. Detached, since torch::optim::Optimizer cannot detach views.
torch::Tensor InLine(const torch::Tensor& line,
                     const ShardedParameter& parameter) {
  return at::as_strided(line, parameter.rows.sizes(), parameter.rows.strides(),
                        parameter.offset)
      .detach();
}

bool RowsFollowOneAnother(const torch::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() &&
         (tensor.size(0) <= 1 ||
          tensor.stride(0) == tensor.numel() / tensor.size(0));
}

// Calls `copy` with matching parts of `flat`, a full parameter, and of `buffer`
// [ranks, ...], starting at the parameter's offset in each line.
template <typename Copy>
void ByLine(const torch::Tensor& flat, const torch::Tensor& buffer,
            const ShardedParameter& parameter, const Copy& copy) {
  const int64_t chunk = parameter.chunk;
  const int64_t full = chunk == 0 ? 0 : flat.numel() / chunk;
  const torch::Tensor columns = buffer.narrow(1, parameter.offset, chunk);
  copy(flat.narrow(0, 0, full * chunk).view({full, chunk}),
       columns.narrow(0, 0, full));
  const int64_t rest = flat.numel() - full * chunk;
  if (rest > 0) {
    copy(flat.narrow(0, full * chunk, rest),
         columns.select(0, full).narrow(0, 0, rest));
  }
}

}  // namespace

ShardedUnit::ShardedUnit(std::string name,
                         const std::vector<NamedTensor>& parameters,
                         const ShardingGroups& groups,
                         const ShardingConfig& config,
                         UnshardedBytes& unsharded)
    : name_(std::move(name)),
      groups_(groups),
      config_(config),
      unsharded_(unsharded) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) Divide(parameter);
  if (config_.offload && !parameters_.empty()) MoveRowsToHost();
}

void ShardedUnit::Divide(const NamedTensor& parameter) {
  torch::Tensor whole = parameter.tensor;
  TORCH_CHECK(whole.dim() > 0, "the parameter ", parameter.name,
              " is a scalar, which has no rows to divide; make it [1]");
  torch::Tensor values = whole.detach();
  if (!RowsFollowOneAnother(values)) values = values.contiguous();
  const int64_t rows = whole.size(0);
  const int64_t most = (rows + groups_.shard.size() - 1) / groups_.shard.size();
  ShardedParameter sharded;
  sharded.name = parameter.name;
  sharded.begin = std::min(rows, most * groups_.shard.place());
  sharded.offset = line_;
  sharded.chunk = rows == 0 ? 0 : most * (whole.numel() / rows);
  line_ += sharded.chunk;

  const int64_t mine = std::min(most, rows - sharded.begin);
  const auto options = values.options().dtype(
      config_.parameter_type.value_or(values.scalar_type()));
  // Reuses the parameter's memory if nothing else shares it (`whole` and
  // `values` do): copying each parameter while dividing them would leave holes
  // too small for any unit.
  torch::Tensor memory = values;
  if (values.scalar_type() != options.dtype().toScalarType() ||
      values.storage().nbytes() != values.nbytes() ||
      values.storage().use_count() > 2) {
    memory = at::empty_like(values, options);
    memory.copy_(values);
  }
  whole.set_data(memory);
  sharded.whole = whole;
  sharded.memory = whole.detach();
  // Rows share the memory of parameters that stay gathered.
  const bool shares = config_.stage < 3 && !config_.offload &&
                      memory.scalar_type() == values.scalar_type();
  sharded.rows =
      (shares ? whole.detach() : values).narrow(0, sharded.begin, mine);
  if (!shares) sharded.rows = sharded.rows.clone();
  whole_bytes_ += static_cast<int64_t>(whole.nbytes());
  parameters_.push_back(std::move(sharded));
  if (config_.stage < 3) return;
  ShardedParameter& added = parameters_.back();
  added.no_memory = WithoutMemory(
      whole, absl::StrCat("the parameter ", added.name,
                          " has no values here: ZeRO 3 has freed them. Read "
                          "this rank's rows (FullyShardedDataParallel::RowsOf "
                          "or Owned), or read the parameter in its section "
                          "(FullyShardedDataParallel::Run)"));
  Free(added);
}

void ShardedUnit::MoveRowsToHost() {
  const torch::Tensor& first = parameters_[0].rows;
  const auto options =
      first.options().device(c10::kCPU).pinned_memory(first.device().is_cuda());
  host_rows_ = at::zeros({line_}, options);
  host_gradients_ = at::zeros({line_}, options);
  for (ShardedParameter& parameter : parameters_)
    parameter.rows = InLine(host_rows_, parameter).copy_(parameter.rows);
}

int64_t ShardedUnit::trained() const {
  return absl::c_count_if(parameters_,
                          [](const auto& each) { return each.trained(); });
}

void ShardedUnit::Free(ShardedParameter& parameter) {
  parameter.whole.set_data(parameter.no_memory);
  parameter.memory.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      c10::DataPtr(nullptr, parameter.memory.device()));
}

void ShardedUnit::Allocate() {
  if (config_.stage < 3) return;
  for (ShardedParameter& parameter : parameters_) {
    const c10::Device device = parameter.memory.device();
    const c10::DeviceGuard guard(device);  // allocators use the current device
    c10::StorageImpl* storage =
        parameter.memory.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(
        c10::GetAllocator(device.type())->allocate(storage->nbytes()));
    parameter.whole.set_data(parameter.memory);
  }
  unsharded_.Add(whole_bytes_);
}

void ShardedUnit::StartGather() {
  state_ = State::kGathering;
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  const auto options = parameters_[0].whole.options().requires_grad(false);
  torch::Tensor own;  // [line_]
  if (host_rows_.defined()) {
    own = host_rows_.to(options.device(), /*non_blocking=*/true, /*copy=*/true)
              .to(options.dtype().toScalarType());
    host_copy_.emplace(options.device());
  } else {
    own = at::zeros({line_}, options);
    std::vector<torch::Tensor> parts, rows;
    for (const ShardedParameter& parameter : parameters_) {
      parts.push_back(own.narrow(0, parameter.offset, parameter.rows.numel()));
      rows.push_back(FlatView(parameter.rows));
    }
    at::_foreach_copy_(parts, rows);  // one launch for all on a GPU
  }
  if (groups_.shard.size() == 1) {
    gather_.emplace(own.view({1, line_}));
  } else {
    unsharded_.Add(groups_.shard.size() * static_cast<int64_t>(own.nbytes()));
    gather_.emplace(StartAllGather(own, groups_.shard, &gather_wait_));
  }
}

void ShardedUnit::FinishGather() {
  if (state_ != State::kGathering) return;
  torch::Tensor lines;  // [ranks, line_]
  if (gather_.has_value()) lines = gather_->Finish();
  Allocate();
  // Leaves the version counters unchanged: the bytes are those that autograd's
  // saved views had.
  const at::NoGradGuard no_grad;
  const at::AutoDispatchBelowADInplaceOrView same_version;
  for (const ShardedParameter& parameter : parameters_) {
    ByLine(FlatView(parameter.memory), lines, parameter,
           [](const torch::Tensor& whole, const torch::Tensor& part) {
             whole.copy_(part);
           });
  }
  if (groups_.shard.size() > 1 && lines.defined())
    unsharded_.Add(-static_cast<int64_t>(lines.nbytes()));
  gather_.reset();
  state_ = State::kWhole;
}

void ShardedUnit::Invalidate(bool free) {
  FinishGather();
  if (state_ == State::kSharded) return;
  state_ = State::kSharded;
  if (!free) return;
  for (ShardedParameter& parameter : parameters_) Free(parameter);
  unsharded_.Add(-whole_bytes_);
}

void ShardedUnit::WidenGradient(ShardedParameter& parameter) {
  torch::Tensor& gradient = parameter.whole.mutable_grad();
  const c10::ScalarType type = parameter.rows.scalar_type();
  if (!gradient.defined() || gradient.scalar_type() == type) return;
  const at::NoGradGuard no_grad;
  const auto narrow_bytes = static_cast<int64_t>(gradient.nbytes());
  // Autograd accumulates in place regardless of the parameter's type.
  gradient = gradient.to(type);
  if (!parameter.counted) return;
  const int64_t added = static_cast<int64_t>(gradient.nbytes()) - narrow_bytes;
  gradient_bytes_ += added;
  unsharded_.Add(added);
}

void ShardedUnit::CountGradient(ShardedParameter& parameter) {
  if (config_.stage == 1 || std::exchange(parameter.counted, true)) return;
  const auto bytes = static_cast<int64_t>(parameter.whole.grad().nbytes());
  gradient_bytes_ += bytes;
  unsharded_.Add(bytes);
}

void ShardedUnit::StartReduce() {
  TORCH_CHECK(!reduce_.has_value(), "the gradients of ", name_,
              " are being reduced already");
  if (trained() == 0) return;
  const at::NoGradGuard no_grad;
  const auto options = parameters_[0]
                           .rows.options()
                           .device(parameters_[0].whole.device())
                           .requires_grad(false);
  const torch::Tensor lines = at::zeros({groups_.shard.size(), line_}, options);
  unsharded_.Add(static_cast<int64_t>(lines.nbytes()));
  for (ShardedParameter& parameter : parameters_) {
    parameter.counted = false;
    torch::Tensor& gradient = parameter.whole.mutable_grad();
    if (!gradient.defined()) continue;
    TORCH_CHECK(!gradient.is_sparse(), "the gradient of ", parameter.name,
                " is sparse, which has no rows to divide");
    torch::Tensor dense = gradient;
    if (dense.strides() != parameter.whole.strides())
      dense = at::empty_like(parameter.whole).copy_(gradient);
    ByLine(FlatView(dense), lines, parameter,
           [](const torch::Tensor& whole, const torch::Tensor& part) {
             part.copy_(whole);
           });
    if (config_.stage > 1) gradient.reset();
  }
  unsharded_.Add(-std::exchange(gradient_bytes_, 0));
  if (groups_.shard.size() == 1) {
    reduce_.emplace(lines.view({-1}));
  } else {
    reduce_.emplace(StartReduceScatter(lines, groups_.shard, &reduce_wait_));
  }
}

void ShardedUnit::FinishReduce() {
  if (!reduce_.has_value()) return;
  const at::NoGradGuard no_grad;
  torch::Tensor sum = reduce_->Finish();
  if (groups_.replicate.size() > 1)
    sum = StartAllReduce(sum, groups_.replicate, &reduce_wait_).Finish();
  const torch::Tensor mean = sum.div_(groups_.ranks());
  if (host_gradients_.defined()) {
    SetHostGradients(mean);
  } else {
    for (ShardedParameter& parameter : parameters_) {
      if (parameter.trained()) SetGradient(parameter, InLine(mean, parameter));
    }
  }
  unsharded_.Add(-groups_.shard.size() * static_cast<int64_t>(mean.nbytes()));
  reduce_.reset();
}

void ShardedUnit::SetGradient(ShardedParameter& parameter,
                              const torch::Tensor& mean) {
  torch::Tensor& gradient = parameter.rows.mutable_grad();
  const torch::Tensor& whole = parameter.whole.grad();
  if (config_.stage == 1 && whole.defined() &&
      whole.scalar_type() == mean.scalar_type()) {
    // Reuses the memory of the full gradient, which is allocated anyway.
    gradient =
        whole.narrow(0, parameter.begin, parameter.rows.size(0)).detach();
    gradient.copy_(mean);
  } else if (gradient.defined()) {
    gradient.add_(mean);
  } else {
    gradient = mean;
  }
}

void ShardedUnit::SetHostGradients(const torch::Tensor& mean) {
  // The optimizer neither reads nor resets the gradients of empty rows.
  const auto has_gradient = [](const ShardedParameter& parameter) {
    return parameter.rows.numel() > 0 && parameter.rows.grad().defined();
  };
  if (absl::c_any_of(parameters_, has_gradient)) {
    AwaitHostCopies();
    host_gradients_.add_(mean.cpu());
    return;
  }
  host_gradients_.copy_(mean, /*non_blocking=*/true);
  host_copy_.emplace(mean.device());
  for (ShardedParameter& parameter : parameters_) {
    if (parameter.trained())
      parameter.rows.mutable_grad() = InLine(host_gradients_, parameter);
  }
}

void ShardedUnit::AwaitHostCopies() {
  if (host_copy_.has_value()) host_copy_->Wait();
  host_copy_.reset();
}

void ShardedUnit::DropGradients() {
  for (ShardedParameter& parameter : parameters_)
    parameter.whole.mutable_grad().reset();
}

void ShardedUnits::StartGather(size_t unit) {
  units_[unit]->StartGather();
  if (zero_ < 3) return;
  const auto gathered = static_cast<int>(absl::c_count_if(
      units_, [](const auto& each) { return each->gathered(); }));
  peak_gathered_ = std::max(peak_gathered_, gathered);
}

}  // namespace rankwise

#include "parallel/ddp/distributed_data_parallel.h"

#include <algorithm>
#include <limits>
#include <set>
#include <unordered_map>

#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "c10/util/Exception.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/hierarchical.h"
#include "parallel/ddp/model_state.h"
#include "parallel/device/graph.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/autograd/engine.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/comm.hpp"
#include "torch/csrc/distributed/c10d/logger.hpp"
#include "torch/csrc/distributed/c10d/reducer.hpp"
#include "torch/nn/module.h"

namespace rankwise {
namespace {

// Reduces gradients as 16-bit floats: casts a bucket to `dtype` (kHalf,
// kBFloat16), divides it by the group's size, all-reduces it and casts it back
// into the bucket, as Python's fp16_compress_hook and bf16_compress_hook do.
// Halves the bytes on the wire; the sum is 16-bit too. Dividing first keeps
// kHalf's sum from overflowing.
class CompressHook : public c10d::CppCommHookInterface<
                         c10::intrusive_ptr<c10d::ProcessGroup>> {
 public:
  CompressHook(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
               c10::ScalarType dtype)
      : CppCommHookInterface(group), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override {
    at::Tensor buffer = bucket.getBuffer();
    std::vector<at::Tensor> compressed{buffer.to(dtype_)};
    compressed[0].div_(state_->getSize());
    auto decompress = [buffer](c10::ivalue::Future& reduced) -> c10::IValue {
      buffer.copy_(reduced.value().toTensorVector()[0]);
      return buffer;
    };
    return state_->allreduce(compressed)
        ->getFuture()
        ->then(decompress, c10::TensorType::get());
  }

 private:
  const c10::ScalarType dtype_;
};

// Returns every bucket unchanged, without communication, which leaves only the
// bookkeeping of data parallelism. The state is the time at which a bucket was
// last returned.
class LocalHook
    : public c10d::CppCommHookInterface<std::shared_ptr<std::atomic<int64_t>>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;

  c10::intrusive_ptr<c10::ivalue::Future> runHook(
      c10d::GradBucket& bucket) override {
    state_->store(SteadyNowNs());
    const at::Tensor buffer = bucket.getBuffer();
    std::vector<c10::Device> devices;
    if (!buffer.device().is_cpu()) devices.push_back(buffer.device());
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::TensorType::get(), std::move(devices));
    future->markCompleted(c10::IValue(buffer));
    return future;
  }
};

absl::Status CheckConfig(const DdpConfig& config) {
  if (config.skip_communication &&
      (config.find_unused_parameters ||
       config.comm_hook != DdpConfig::CommHook::kNone)) {
    return absl::InvalidArgumentError(
        "skip_communication works neither with find_unused_parameters nor with "
        "a comm_hook");
  }
  if (config.last_bucket_bytes < 0 ||
      (config.last_bucket_bytes > 0 && config.find_unused_parameters &&
       !config.static_graph)) {
    return absl::InvalidArgumentError(
        absl::StrCat("last_bucket_bytes is ", config.last_bucket_bytes,
                     ": must be at least 0, and must be 0 with "
                     "find_unused_parameters without static_graph"));
  }
  if (config.bucket_cap_bytes > 0 && config.first_bucket_bytes > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("bucket sizes must be positive: bucket_cap_bytes is ",
                   config.bucket_cap_bytes, ", first_bucket_bytes ",
                   config.first_bucket_bytes));
}

}  // namespace

std::shared_ptr<std::optional<DeviceEvent>> RecordBackwardEnd(
    const at::Tensor& output, c10::Device device) {
  auto end = std::make_shared<std::optional<DeviceEvent>>();
  if (!output.requires_grad()) return end;
  output.register_hook([end, device](const at::Tensor&) {
    torch::autograd::Engine::get_default_engine().queue_callback(
        [end, device] { end->emplace(device); });
  });
  return end;
}

absl::StatusOr<std::unique_ptr<DistributedDataParallel>>
DistributedDataParallel::Create(torch::nn::Module& module, const Group& group,
                                const DdpConfig& config) {
  RETURN_IF_ERROR(CheckConfig(config));
  if (group.process_group() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedDataParallel has nothing to do: the group '",
                     group.name(), "' is one rank without a process group"));
  }
  std::unique_ptr<DistributedDataParallel> ddp(
      new DistributedDataParallel(module, group, config));
  // Python DDP's order, which is also the order of its collectives.
  try {
    RETURN_IF_ERROR(VerifyModel(module, group));
    RETURN_IF_ERROR(ddp->CheckParameters());
    c10d::verify_params_across_processes(group.process_group(),
                                         ddp->parameters_, std::nullopt);
    std::vector<NamedTensor> state = ModelParameters(module);
    if (config.broadcast_buffers) {
      for (NamedTensor& buffer : ModelBuffers(module)) state.push_back(buffer);
    }
    BroadcastFromFirst(state, group);
    ddp->BuildReducer();
  } catch (const std::exception& error) {
    return group.communicator()->ExplainFailure(
        "setting up DistributedDataParallel", error);
  }
  return ddp;
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module,
                                                 const Group& group,
                                                 const DdpConfig& config)
    : module_(module),
      group_(group),
      device_(group.communicator()->device()),
      config_(config) {
  for (NamedTensor& item : ModelParameters(module)) {
    if (!item.tensor.requires_grad()) continue;
    names_.push_back(std::move(item.name));
    parameters_.push_back(std::move(item.tensor));
    expect_sparse_.push_back(item.sparse_gradient);
  }
}

// Not defaulted in the header, where Reducer is incomplete.
DistributedDataParallel::~DistributedDataParallel() = default;

absl::Status DistributedDataParallel::CheckParameters() const {
  if (parameters_.empty()) {
    return absl::InvalidArgumentError(
        "DistributedDataParallel has nothing to do: the model has no parameter "
        "that requires a gradient");
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].device() == device_) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", names_[i], "' is on ", parameters_[i].device().str(),
        " but rank ", group_.communicator()->rank(), " communicates on ",
        device_.str(), "; move the model there first"));
  }
  return absl::OkStatus();
}

void DistributedDataParallel::BuildReducer() {
  const int64_t first_bytes =
      std::min(config_.first_bucket_bytes, config_.bucket_cap_bytes);
  // If buckets will be rebuilt in gradient order, starts with a single bucket,
  // as Python does, to be independent of the registration order.
  std::vector<size_t> limits{std::numeric_limits<int64_t>::max()};
  if (config_.find_unused_parameters && !config_.static_graph) {
    limits = {static_cast<size_t>(first_bytes),
              static_cast<size_t>(config_.bucket_cap_bytes)};
  }
  std::vector<std::vector<size_t>> buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(parameters_, limits,
                                                          expect_sparse_));
  // Gradients arrive roughly in the reverse order of registration.
  std::reverse(buckets.begin(), buckets.end());

  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < names_.size(); ++i) names[i] = names_[i];
  reducer_ = std::make_shared<c10d::Reducer>(
      parameters_, std::move(buckets), group_.process_group(), expect_sparse_,
      config_.bucket_cap_bytes, config_.find_unused_parameters,
      config_.gradient_as_bucket_view, std::move(names), first_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  if (config_.static_graph) reducer_->set_static_graph();
  RegisterCommHook();
}

void DistributedDataParallel::RegisterCommHook() {
  if (config_.skip_communication) {
    last_local_bucket_ = std::make_shared<std::atomic<int64_t>>(0);
    reducer_->register_comm_hook(
        std::make_unique<LocalHook>(last_local_bucket_));
    return;
  }
  using Hook = DdpConfig::CommHook;
  if (config_.comm_hook == Hook::kNone) return;
  reducer_->register_comm_hook(std::make_unique<CompressHook>(
      group_.process_group(),
      config_.comm_hook == Hook::kFp16 ? torch::kHalf : torch::kBFloat16));
}

void DistributedDataParallel::BeforeForward() {
  // With static_graph the first backward reduces regardless of sync_: c10d
  // records the graph in it. Later micro-batches are reduced as usual.
  const bool recording = config_.static_graph && !graph_recorded_;
  step_syncs_ = sync_ || recording;
  if (step_syncs_) reducer_->prepare_for_forward();
  RebuildBuckets();
  if (buffers_stale_ && config_.broadcast_buffers &&
      !config_.skip_communication) {
    BroadcastFromFirst(ModelBuffers(module_), group_);
  }
}

void DistributedDataParallel::BeforeBackward(
    const std::vector<torch::Tensor>& outputs) {
  // Without sync the buffers of this forward stay local: rank 0's are broadcast
  // again only after the next synchronised step, as in Python.
  buffers_stale_ = step_syncs_;
  if (!step_syncs_) return;
  const bool search = config_.find_unused_parameters && !config_.static_graph;
  reducer_->prepare_for_backward(search ? outputs
                                        : std::vector<torch::Tensor>{});
  ready_times_ = reducer_->get_backward_stats();
  backward_start_ns_ = SteadyNowNs();
  if (MarksBackward())
    backward_end_ = RecordBackwardEnd(outputs.front(), device_);
}

bool DistributedDataParallel::MarksBackward() const {
  return !device_.is_cpu() && !config_.skip_communication &&
         !IsCapturing(device_);
}

void DistributedDataParallel::AfterBackward() {
  int64_t comm_start_ns = LastReductionStartNs(group_);
  std::optional<DeviceEvent> own_end;
  if (const auto end = std::exchange(backward_end_, nullptr); end != nullptr)
    own_end = std::move(*end);
  exposed_ = 0;
  if (config_.static_graph && !graph_recorded_) {
    // The first backward only counted gradients and deferred the reduction.
    // Python queues it at the end of backward.
    graph_recorded_ = true;
    comm_start_ns = SteadyNowNs();
    if (MarksBackward()) own_end.emplace(device_);
    reducer_->delay_all_reduce();
  } else if (step_syncs_) {
    const int64_t last_ns =
        config_.skip_communication ? last_local_bucket_->load() : comm_start_ns;
    CheckReduced(/*communicated=*/last_ns >= backward_start_ns_);
  }
  if (config_.skip_communication) return;
  if (device_.is_cpu() && step_syncs_) {
    exposed_ = (SteadyNowNs() - comm_start_ns) * 1e-9;
  } else if (own_end.has_value()) {
    exposed_ = PendingDuration(*std::move(own_end), DeviceEvent(device_));
  }
}

void DistributedDataParallel::CheckReduced(bool communicated) {
  if (communicated) {
    try {
      reducer_->check_finalized();
      return;
    } catch (const c10::Error&) {
      if (MissingGradients().empty()) throw;
    }
  }
  TORCH_CHECK(false, "backward gave no gradient to ",
              absl::StrJoin(MissingGradients(), ", "), " on rank ",
              group_.communicator()->rank(),
              ", so that the other gradients of its bucket were not reduced "
              "either; if not every step uses every parameter, set "
              "find_unused_parameters");
}

std::vector<std::string> DistributedDataParallel::MissingGradients() const {
  const std::vector<int64_t> times = reducer_->get_backward_stats();
  std::vector<std::string> missing;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] == ready_times_[i]) missing.push_back(names_[i]);
  }
  return missing;
}

std::vector<int64_t> DistributedDataParallel::bucket_bytes() const {
  return c10d::Logger(reducer_).get_bucket_sizes();
}

std::vector<std::vector<size_t>> DistributedDataParallel::Buckets() const {
  if (!split_buckets_.empty()) return split_buckets_;
  std::unordered_map<const void*, size_t> numbers;
  for (size_t i = 0; i < parameters_.size(); ++i)
    numbers[parameters_[i].unsafeGetTensorImpl()] = i;
  std::vector<std::vector<size_t>> buckets;
  for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(false)) {
    std::vector<size_t>& those = buckets.emplace_back();
    for (const torch::Tensor& parameter : bucket.getParameters())
      those.push_back(numbers.at(parameter.unsafeGetTensorImpl()));
  }
  return buckets;
}

void DistributedDataParallel::RebuildBuckets() {
  if (!reducer_->rebuild_buckets() || config_.last_bucket_bytes == 0) return;
  std::vector<std::vector<size_t>> buckets = Buckets();
  std::vector<size_t>& last = buckets.back();
  int64_t bytes = 0;
  const auto too_many = std::find_if(last.rbegin(), last.rend(), [&](size_t i) {
    bytes += static_cast<int64_t>(parameters_[i].nbytes());
    return bytes > config_.last_bucket_bytes;
  });
  if (too_many == last.rbegin() || too_many == last.rend()) return;
  std::vector<size_t> split(too_many.base(), last.end());
  last.erase(too_many.base(), last.end());
  buckets.push_back(std::move(split));
  split_buckets_ = buckets;
  reducer_->initialize_buckets(std::move(buckets));
}

std::string DistributedDataParallel::BucketOrder() {
  // After the first step PyTorch defers this to the next forward.
  RebuildBuckets();
  std::vector<std::string> buckets;
  for (const std::vector<size_t>& bucket : Buckets())
    buckets.push_back(absl::StrJoin(bucket, ","));
  return absl::StrJoin(buckets, ";");
}

void DistributedDataParallel::UseBucketOrder(const std::string& order) {
  std::vector<std::vector<size_t>> buckets;
  std::set<size_t> all;
  for (const absl::string_view bucket : absl::StrSplit(order, ';')) {
    buckets.emplace_back();
    for (const absl::string_view text : absl::StrSplit(bucket, ',')) {
      uint64_t number = 0;
      if (!absl::SimpleAtoi(text, &number) || number >= parameters_.size() ||
          !all.insert(number).second)
        return;
      buckets.back().push_back(number);
    }
  }
  if (all.size() == parameters_.size())
    reducer_->initialize_buckets(std::move(buckets));
}

}  // namespace rankwise

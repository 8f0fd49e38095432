#include "parallel/ddp/distributed_data_parallel.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "parallel/comm/communicator.h"
#include "parallel/ddp/compress_hook.h"
#include "parallel/ddp/model_state.h"
#include "parallel/ddp/verify_model.h"
#include "parallel/device/graph.h"
#include "parallel/device/moment.h"
#include "torch/csrc/distributed/c10d/logger.hpp"
#include "torch/csrc/distributed/c10d/reducer.hpp"
#include "torch/nn/module.h"

namespace rankwise {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

absl::Status CheckConfig(const DdpConfig& config) {
  if (config.skip_communication &&
      (config.find_unused_parameters ||
       config.comm_hook != DdpConfig::CommHook::kNone)) {
    return absl::InvalidArgumentError(
        "skip_communication works neither with find_unused_parameters nor with "
        "a comm_hook");
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

absl::StatusOr<std::unique_ptr<DistributedDataParallel>>
DistributedDataParallel::Create(torch::nn::Module& module,
                                Communicator& communicator,
                                const DdpConfig& config) {
  if (absl::Status status = CheckConfig(config); !status.ok()) return status;
  std::unique_ptr<DistributedDataParallel> ddp(
      new DistributedDataParallel(module, communicator, config));
  // The order of Python's DDP: it is the order of collectives, too.
  try {
    if (absl::Status s = VerifyModel(module, communicator); !s.ok()) return s;
    if (absl::Status s = ddp->CheckParameters(); !s.ok()) return s;
    c10d::verify_params_across_processes(communicator.process_group(),
                                         ddp->parameters_, std::nullopt);
    std::vector<NamedTensor> state = ModelParameters(module);
    if (config.broadcast_buffers) {
      for (NamedTensor& buffer : ModelBuffers(module)) state.push_back(buffer);
    }
    BroadcastFromRankZero(state, communicator);
    ddp->BuildReducer();
  } catch (const std::exception& error) {
    return communicator.ExplainFailure("setting up DistributedDataParallel",
                                       error);
  }
  return ddp;
}

DistributedDataParallel::DistributedDataParallel(torch::nn::Module& module,
                                                 Communicator& communicator,
                                                 const DdpConfig& config)
    : module_(module),
      communicator_(communicator),
      config_(config),
      backward_end_(communicator.device()) {
  for (NamedTensor& item : ModelParameters(module)) {
    if (!item.tensor.requires_grad()) continue;
    names_.push_back(std::move(item.name));
    parameters_.push_back(std::move(item.tensor));
    expect_sparse_.push_back(item.sparse_gradient);
  }
}

// Not defaulted in the header, where Reducer and Logger are incomplete.
DistributedDataParallel::~DistributedDataParallel() = default;

absl::Status DistributedDataParallel::CheckParameters() const {
  if (parameters_.empty()) {
    return absl::InvalidArgumentError(
        "DistributedDataParallel has nothing to do: the model has no parameter "
        "that requires a gradient");
  }
  const c10::Device device = communicator_.device();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].device() == device) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "parameter '", names_[i], "' is on ", parameters_[i].device().str(),
        " but rank ", communicator_.rank(), " communicates on ", device.str(),
        "; move the model there first"));
  }
  return absl::OkStatus();
}

void DistributedDataParallel::BuildReducer() {
  const int64_t first_bytes =
      std::min(config_.first_bucket_bytes, config_.bucket_cap_bytes);
  // Where buckets will be rebuilt in the order of the gradients, Python starts
  // with a single one, so as not to depend on the order of registration.
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
      parameters_, std::move(buckets), communicator_.process_group(),
      expect_sparse_, config_.bucket_cap_bytes, config_.find_unused_parameters,
      config_.gradient_as_bucket_view, std::move(names), first_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<int64_t>{});
  logger_ = std::make_shared<c10d::Logger>(reducer_);
  reducer_->set_logger(logger_);
  const bool cuda = communicator_.device().is_cuda();
  const int device = cuda ? communicator_.device().index() : -1;
  logger_->set_construction_data_and_log(
      module_.name(), cuda ? std::vector<int>{device} : std::vector<int>{},
      device, config_.broadcast_buffers, /*has_sync_bn=*/false,
      config_.static_graph);
  if (config_.static_graph) {
    reducer_->set_static_graph();
    logger_->set_static_graph();
  }
  RegisterCommHook();
}

void DistributedDataParallel::RegisterCommHook() {
  if (config_.skip_communication) {
    last_local_bucket_ = std::make_shared<LastBucketTime>(0);
    reducer_->register_comm_hook(
        std::make_unique<LocalHook>(last_local_bucket_));
    return;
  }
  using Hook = DdpConfig::CommHook;
  if (config_.comm_hook == Hook::kNone) return;
  const bool fp16 = config_.comm_hook == Hook::kFp16;
  reducer_->register_comm_hook(std::make_unique<CompressHook>(
      communicator_.process_group(), fp16 ? torch::kHalf : torch::kBFloat16));
  logger_->set_comm_hook(fp16 ? "fp16_compress" : "bf16_compress");
}

void DistributedDataParallel::BeforeForward() {
  // The first backward under static_graph reduces whatever sync says: that is
  // where c10d learns the graph. What later micro-batches add is reduced as
  // ever.
  const bool recording = config_.static_graph && !graph_recorded_;
  step_syncs_ = sync_ || recording;
  if (step_syncs_) {
    // Waits for the device in the steps that it samples.
    if (communicator_.device().is_cpu()) logger_->set_runtime_stats_and_log();
    reducer_->prepare_for_forward();
  }
  reducer_->rebuild_buckets();
  if (buffers_stale_ && config_.broadcast_buffers &&
      !config_.skip_communication) {
    BroadcastFromRankZero(ModelBuffers(module_), communicator_);
  }
}

void DistributedDataParallel::BeforeBackward(
    const std::vector<torch::Tensor>& outputs) {
  // Without sync, the buffers of this forward are local: rank 0's are sent
  // again only after the next synchronised step, as in Python.
  buffers_stale_ = step_syncs_;
  if (!step_syncs_) return;
  const bool search = config_.find_unused_parameters && !config_.static_graph;
  reducer_->prepare_for_backward(search ? outputs
                                        : std::vector<torch::Tensor>{});
  ready_times_ = reducer_->get_backward_stats();
  backward_start_ns_ = NowNs();
  if (MarksBackward()) backward_end_.Watch(outputs.front());
}

bool DistributedDataParallel::MarksBackward() const {
  const c10::Device device = communicator_.device();
  return !device.is_cpu() && !config_.skip_communication &&
         !IsCapturing(device);
}

void DistributedDataParallel::AfterBackward() {
  const c10::Device device = communicator_.device();
  int64_t comm_start_ns = communicator_.last_collective_start_ns();
  std::optional<Moment> own_end = backward_end_.Take();
  exposed_ = 0;
  if (config_.static_graph && !graph_recorded_) {
    // The first backward only counted gradients and left the reduction to this
    // moment. Python queues it as the end of backward.
    graph_recorded_ = true;
    comm_start_ns = NowNs();
    if (MarksBackward()) own_end.emplace(device);
    reducer_->delay_all_reduce();
  } else if (step_syncs_) {
    const int64_t last_ns =
        config_.skip_communication ? last_local_bucket_->load() : comm_start_ns;
    CheckReduced(/*communicated=*/last_ns >= backward_start_ns_);
  }
  if (config_.skip_communication) return;
  if (device.is_cpu() && step_syncs_) {
    exposed_ = (NowNs() - comm_start_ns) * 1e-9;
  } else if (own_end.has_value()) {
    exposed_ = LaterSeconds(*std::move(own_end), Moment(device));
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
              communicator_.rank(),
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
  return logger_->get_bucket_sizes();
}

std::map<std::string, std::string> DistributedDataParallel::LoggingData()
    const {
  const c10::DDPLoggingData data = logger_->get_ddp_logging_data();
  std::map<std::string, std::string> text(data.strs_map.begin(),
                                          data.strs_map.end());
  for (const auto& [key, value] : data.ints_map) {
    text[key] = std::to_string(value);
  }
  return text;
}

}  // namespace rankwise

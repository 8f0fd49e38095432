#include "parallel/comm/monitored_backend.h"

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/comm/monitored_message.h"
#include "parallel/comm/nccl_backend.h"
#include "parallel/device/graph.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {
namespace {

using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<Work>;

// Every virtual function of c10d::Backend is forwarded here: one that is not
// would fail with "does not support" although `inner_` does.
class MonitoredBackend : public c10d::Backend {
 public:
  MonitoredBackend(c10::intrusive_ptr<c10d::Backend> inner,
                   std::shared_ptr<CollectiveLog> log, WatchCompletion watch,
                   int group, Asking asking)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        log_(std::move(log)),
        watch_(watch),
        group_(group),
        asking_(std::move(asking)) {}

  const c10::intrusive_ptr<c10d::Backend>& inner() const { return inner_; }

  // Collectives.
  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& opts) override {
    return Log(
        "broadcast", tensors, [&] { return inner_->broadcast(tensors, opts); },
        opts.rootRank);
  }
  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    return Log("all_reduce", tensors,
               [&] { return inner_->allreduce(tensors, opts); });
  }
  WorkPtr allreduce_sparse(Tensors& tensors,
                           const c10d::AllreduceOptions& opts) override {
    return Log("all_reduce_sparse", tensors,
               [&] { return inner_->allreduce_sparse(tensors, opts); });
  }
  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return Log("all_reduce_coalesced", tensors,
               [&] { return inner_->allreduce_coalesced(tensors, opts); });
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return Log(
        "reduce", tensors, [&] { return inner_->reduce(tensors, opts); },
        opts.rootRank);
  }
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    return Log("all_gather", inputs,
               [&] { return inner_->allgather(outputs, inputs, opts); });
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return Log("all_gather", input,
               [&] { return inner_->_allgather_base(output, input, opts); });
  }
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override {
    return Log("all_gather_coalesced", inputs, [&] {
      return inner_->allgather_coalesced(outputs, inputs, opts);
    });
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& opts) override {
    return Log("all_gather_coalesced", inputs, [&] {
      return inner_->allgather_into_tensor_coalesced(outputs, inputs, opts);
    });
  }
  WorkPtr gather(TensorLists& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    return Log(
        "gather", inputs, [&] { return inner_->gather(outputs, inputs, opts); },
        opts.rootRank);
  }
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs,
                  const c10d::ScatterOptions& opts) override {
    return Log(
        "scatter", outputs,
        [&] { return inner_->scatter(outputs, inputs, opts); }, opts.rootRank);
  }
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return Log("reduce_scatter", outputs,
               [&] { return inner_->reduce_scatter(outputs, inputs, opts); });
  }
  WorkPtr _reduce_scatter_base(
      at::Tensor& output, at::Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return LogWait("reduce_scatter", input, [&] {
      return inner_->_reduce_scatter_base(output, input, opts);
    });
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::ReduceScatterOptions& opts) override {
    return LogWait("reduce_scatter_coalesced", inputs, [&] {
      return inner_->reduce_scatter_tensor_coalesced(outputs, inputs, opts);
    });
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override {
    return Log("all_to_all", input, [&] {
      return inner_->alltoall_base(output, input, output_splits, input_splits,
                                   opts);
    });
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& opts) override {
    return Log("all_to_all", inputs,
               [&] { return inner_->alltoall(outputs, inputs, opts); });
  }
  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return Log("barrier", {}, [&] { return inner_->barrier(opts); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& opts,
                        bool wait_all_ranks) override {
    const CollectiveLog::Ticket ticket =
        log_->Begin("monitored_barrier", {}, /*observed=*/true, group_);
    EndIfThrown(ticket,
                [&] { inner_->monitoredBarrier(opts, wait_all_ranks); });
    log_->End(ticket, /*ok=*/true);
  }

  // Messages between two ranks.
  WorkPtr send(Tensors& tensors, int dst_rank, int tag) override {
    return LogMessage("send", tensors, dst_rank,
                      [&] { return inner_->send(tensors, dst_rank, tag); });
  }
  WorkPtr recv(Tensors& tensors, int src_rank, int tag) override {
    return LogMessage("recv", tensors, src_rank,
                      [&] { return inner_->recv(tensors, src_rank, tag); });
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return LogMessage("recv_any_source", tensors, /*peer=*/-1,
                      [&] { return inner_->recvAnysource(tensors, tag); });
  }

  // A coalesced group of calls is one collective to the ranks that wait for it.
  void startCoalescing() override {
    log_->StartCoalescing(group_);
    inner_->startCoalescing();
    coalescing_ = true;
  }
  WorkPtr endCoalescing() override {
    coalescing_ = false;
    return Log("coalesced", {}, [&] { return inner_->endCoalescing(); });
  }

  // Properties and settings.
  const std::string getBackendName() const override {
    return inner_->getBackendName();
  }
  bool supportsSplitting() const override {
    return inner_->supportsSplitting();
  }
  bool supportsCoalescing() const override {
    return inner_->supportsCoalescing();
  }
  bool supportsTimeEstimation() const override {
    return inner_->supportsTimeEstimation();
  }
  bool supportsShrinking() const override {
    return inner_->supportsShrinking();
  }
  bool supportsTensorAlloc(c10::DeviceIndex index) override {
    return inner_->supportsTensorAlloc(index);
  }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return inner_->getBackendOptions();
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    inner_->setTimeout(timeout);
  }
  void setSequenceNumberForGroup() override {
    inner_->setSequenceNumberForGroup();
  }
  uint64_t getSequenceNumberForGroup() override {
    return inner_->getSequenceNumberForGroup();
  }
  void setGroupUid(const std::string& uid) override {
    Backend::setGroupUid(uid);
    inner_->setGroupUid(uid);
  }
  void registerOnCompletionHook(
      std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override {
    inner_->registerOnCompletionHook(std::move(hook));
  }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  void enableCollectivesTiming() override { inner_->enableCollectivesTiming(); }
  void eagerConnectSingleDevice(at::Device device) override {
    inner_->eagerConnectSingleDevice(device);
  }
  c10d::ErrorType getError() override { return inner_->getError(); }
  std::shared_ptr<c10::Allocator> getMemAllocator() override {
    return inner_->getMemAllocator();
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return inner_->allocateTensor(size, options);
  }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

  // Groups made from this one are not monitored: their sequence numbers are
  // their own.
  c10::intrusive_ptr<Backend> split(
      const c10::intrusive_ptr<c10d::Store>& store,
      const std::vector<int>& ranks,
      const c10::intrusive_ptr<Options>& opts) override {
    return inner_->split(store, ranks, opts);
  }
  c10::intrusive_ptr<Backend> merge(
      const c10::intrusive_ptr<c10d::Store>& store,
      const c10::intrusive_ptr<Options>& opts, const int& rank,
      const int& size) override {
    return inner_->merge(store, opts, rank, size);
  }
  c10::intrusive_ptr<Backend> shrink(
      const std::vector<int64_t>& ranks_to_exclude, int flags,
      const c10::intrusive_ptr<Options>& opts) override {
    return inner_->shrink(ranks_to_exclude, flags, opts);
  }

 private:
  template <typename Call>
  std::invoke_result_t<Call> EndIfThrown(CollectiveLog::Ticket ticket,
                                         Call call) {
    try {
      return call();
    } catch (...) {
      log_->End(ticket, /*ok=*/false);
      throw;
    }
  }

  template <typename Call>
  WorkPtr Log(const char* name, at::ArrayRef<at::Tensor> tensors, Call call,
              int64_t root = -1) {
    const bool observed = watch_ == WatchCompletion::kYes;
    const CollectiveLog::Ticket ticket =
        log_->Begin(name, tensors, observed, group_, static_cast<int>(root));
    WorkPtr work = EndIfThrown(ticket, call);
    FollowIfAsked(ticket, work, /*peer=*/-1);
    if (observed && work != nullptr) {
      work->getFuture()->addCallback(
          [log = log_, ticket](c10::ivalue::Future& future) {
            log->End(ticket, !future.hasError());
          },
          /*uses_future=*/false);
    }
    return work;
  }

  // Calls between startCoalescing and endCoalescing have no end of their own.
  void FollowIfAsked(CollectiveLog::Ticket ticket, const WorkPtr& work,
                     int peer) {
    if (watch_ != WatchCompletion::kAsked || work == nullptr || coalescing_ ||
        IsCapturing(asking_.device)) {
      return;
    }
    asking_.watch->Follow(ticket, WithoutTensors(work), {group_, peer});
  }

  // For calls whose works have no future.
  template <typename Call>
  WorkPtr LogWait(const char* name, at::ArrayRef<at::Tensor> tensors,
                  Call call) {
    const bool observed = watch_ == WatchCompletion::kYes;
    const CollectiveLog::Ticket ticket =
        log_->Begin(name, tensors, observed, group_);
    WorkPtr work = EndIfThrown(ticket, call);
    FollowIfAsked(ticket, work, /*peer=*/-1);
    if (!observed || work == nullptr) return work;
    return MakeMonitoredWait(std::move(work), log_, ticket);
  }

  template <typename Call>
  WorkPtr LogMessage(const char* name, at::ArrayRef<at::Tensor> tensors,
                     int peer, Call call) {
    const MessageEntry entry(log_, name, tensors, peer, group_);
    try {
      WorkPtr work = call();
      FollowIfAsked(entry.ticket(), work, peer);
      if (watch_ != WatchCompletion::kYes || work == nullptr) return work;
      return MakeMonitoredMessage(std::move(work), entry);
    } catch (...) {
      entry.Failed(/*waited=*/absl::ZeroDuration());
      throw;
    }
  }

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const std::shared_ptr<CollectiveLog> log_;
  const WatchCompletion watch_;
  const int group_;
  const Asking asking_;
  bool coalescing_ = false;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    WatchCompletion watch, int group, Asking asking) {
  return c10::make_intrusive<MonitoredBackend>(std::move(inner), std::move(log),
                                               watch, group, std::move(asking));
}

c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* monitored = dynamic_cast<const MonitoredBackend*>(backend.get());
  return monitored == nullptr ? backend : monitored->inner();
}

}  // namespace rankwise

#include <atomic>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/watchdog.h"
#include "parallel/device/graph.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise {
namespace {

using c10d::Work;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkPtr = c10::intrusive_ptr<Work>;

// A call without a future, such as Gloo's messages and reduce_scatters. wait()
// records the result in the log; for a collective without a wait, the
// destructor does. Forwards every virtual function of c10d::Work.
class MonitoredWork : public c10d::Work {
 public:
  struct Call {
    const char* name;
    int group;
    CollectiveLog::Ticket ticket;
    std::optional<int> peer;  // nullopt for a collective
  };

  MonitoredWork(WorkPtr inner, std::shared_ptr<CollectiveLog> log, Call call)
      : Work(/*rank=*/-1, inner->retrieveOpType()),
        inner_(std::move(inner)),
        log_(std::move(log)),
        call_(call) {}
  ~MonitoredWork() override {
    if (!call_.peer.has_value()) End(/*ok=*/true);
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const SteadyTime start = SteadyNow();
    try {
      if (call_.peer.has_value()) log_->WaitPointToPoint(call_.ticket);
      const bool completed = inner_->wait(timeout);
      End(/*ok=*/true);
      return completed;
    } catch (...) {
      End(/*ok=*/false, ElapsedSince(start));
      throw;
    }
  }
  bool isCompleted() override { return inner_->isCompleted(); }
  bool isSuccess() const override { return inner_->isSuccess(); }
  std::exception_ptr exception() const override { return inner_->exception(); }
  int sourceRank() const override { return inner_->sourceRank(); }
  std::vector<at::Tensor> result() override { return inner_->result(); }
  void synchronize() override { inner_->synchronize(); }
  void blockCurrentStream() override { inner_->blockCurrentStream(); }
  void abort() override { inner_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return inner_->getFuture();
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    return inner_->getFutureResult();
  }
  float getDuration() const override { return inner_->getDuration(); }
  uint64_t getSequencenumber() const override {
    return inner_->getSequencenumber();
  }

  // Also records the failure if the start was overwritten.
  static void NoteMessageFailure(CollectiveLog& log, const Call& call,
                                 absl::Duration waited) {
    if (log.EndPointToPoint(call.ticket, /*ok=*/false, waited)) return;
    log.EndPointToPoint(
        log.BeginPointToPoint(call.name, {}, *call.peer, call.group),
        /*ok=*/false, waited);
  }

 private:
  void End(bool ok, absl::Duration waited = absl::ZeroDuration()) {
    if (!call_.peer.has_value()) {
      if (!ended_.exchange(true)) log_->End(call_.ticket, ok);
    } else if (ok) {
      log_->EndPointToPoint(call_.ticket, /*ok=*/true);
    } else {
      NoteMessageFailure(*log_, call_, waited);
    }
  }

  const WorkPtr inner_;
  const std::shared_ptr<CollectiveLog> log_;
  const Call call_;
  std::atomic<bool> ended_{false};  // for collectives only
};

// Forwards every virtual function of c10d::Backend (c10d would report any other
// as "does not support"), except hooks and functions that create subgroups,
// which Communicator::NewGroup replaces.
class MonitoredBackend : public c10d::Backend {
 public:
  MonitoredBackend(c10::intrusive_ptr<c10d::Backend> inner,
                   std::shared_ptr<CollectiveLog> log, Monitoring monitoring)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        log_(std::move(log)),
        group_(monitoring.group),
        watchdog_(std::move(monitoring.watchdog)),
        device_(monitoring.device) {}

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

  // A coalesced group of calls counts as one collective.
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
  bool supportsCoalescing() const override {
    return inner_->supportsCoalescing();
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

  // `has_future`: whether the work returned by `call` has one.
  template <typename Call>
  WorkPtr Log(const char* name, at::ArrayRef<at::Tensor> tensors, Call call,
              int64_t root = -1, bool has_future = true) {
    const bool observed = watchdog_ == nullptr;
    const CollectiveLog::Ticket ticket =
        log_->Begin(name, tensors, observed, group_, static_cast<int>(root));
    WorkPtr work = EndIfThrown(ticket, call);
    FollowIfPolled(ticket, work, /*peer=*/-1);
    if (!observed || work == nullptr) return work;
    if (!has_future) {
      return c10::make_intrusive<MonitoredWork>(
          std::move(work), log_,
          MonitoredWork::Call{name, group_, ticket, std::nullopt});
    }
    work->getFuture()->addCallback(
        [log = log_, ticket](c10::ivalue::Future& future) {
          log->End(ticket, !future.hasError());
        },
        /*uses_future=*/false);
    return work;
  }

  template <typename Call>
  WorkPtr LogWait(const char* name, at::ArrayRef<at::Tensor> tensors,
                  Call call) {
    return Log(name, tensors, call, /*root=*/-1, /*has_future=*/false);
  }

  // Calls between startCoalescing and endCoalescing do not complete by
  // themselves.
  void FollowIfPolled(CollectiveLog::Ticket ticket, const WorkPtr& work,
                      int peer) {
    if (watchdog_ == nullptr || work == nullptr || coalescing_ ||
        IsCapturing(device_)) {
      return;
    }
    watchdog_->Follow(ticket, WithoutTensors(work), {group_, peer});
  }

  template <typename Call>
  WorkPtr LogMessage(const char* name, at::ArrayRef<at::Tensor> tensors,
                     int peer, Call call) {
    const MonitoredWork::Call entry = {
        name, group_, log_->BeginPointToPoint(name, tensors, peer, group_),
        peer};
    try {
      WorkPtr work = call();
      FollowIfPolled(entry.ticket, work, peer);
      if (watchdog_ != nullptr || work == nullptr) return work;
      return c10::make_intrusive<MonitoredWork>(std::move(work), log_, entry);
    } catch (...) {
      MonitoredWork::NoteMessageFailure(*log_, entry,
                                        /*waited=*/absl::ZeroDuration());
      throw;
    }
  }

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const std::shared_ptr<CollectiveLog> log_;
  const int group_;
  const std::shared_ptr<Watchdog> watchdog_;
  const c10::Device device_;
  bool coalescing_ = false;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> MakeMonitoredBackend(
    c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveLog> log,
    Monitoring monitoring) {
  return c10::make_intrusive<MonitoredBackend>(std::move(inner), std::move(log),
                                               std::move(monitoring));
}

c10::intrusive_ptr<c10d::Backend> WithoutMonitoring(
    const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* monitored = dynamic_cast<const MonitoredBackend*>(backend.get());
  return monitored == nullptr ? backend : monitored->inner();
}

}  // namespace rankwise

#include "parallel/comm/hierarchical.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros.h"
#include "ATen/record_function.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/communicator.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

using Future = c10::ivalue::Future;
using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The result of an all-reduce, complete when its last part is.
class WholeWork : public c10d::Work {
 public:
  explicit WholeWork(c10::intrusive_ptr<Future> future)
      : Work(/*rank=*/-1, c10d::OpType::ALLREDUCE),
        future_(std::move(future)) {}

  bool wait(std::chrono::milliseconds timeout) override {
    if (timeout != kNoTimeout) AwaitWithin(timeout);
    future_->waitAndThrow();
    return true;
  }
  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return !future_->hasError(); }
  std::exception_ptr exception() const override {
    return future_->exception_ptr();
  }
  std::vector<at::Tensor> result() override {
    return future_->value().toTensorVector();
  }
  void synchronize() override { future_->waitAndThrow(); }
  c10::intrusive_ptr<Future> getFuture() override { return future_; }

 private:
  void AwaitWithin(std::chrono::milliseconds timeout) {
    const auto ended = std::make_shared<std::promise<void>>();
    future_->addCallback([ended](Future&) { ended->set_value(); });
    if (ended->get_future().wait_for(timeout) == std::future_status::ready)
      return;
    C10_THROW_ERROR(DistBackendError,
                    absl::StrCat("hierarchical all_reduce: not complete after ",
                                 timeout.count(), " ms"));
  }

  const c10::intrusive_ptr<Future> future_;
};

// An all-reduce whose first part has been started.
struct Pending {
  at::Tensor result;
  at::Tensor tensor;  // flat view of `result`
  // `tensor`, or a copy padded to a multiple of the ranks of a host.
  at::Tensor whole;
  at::Tensor part;  // this rank's part
  // Applies to each of the three collectives separately; kUnsetTimeout stands
  // for the timeout of the collective's group.
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  WorkPtr scattered;
  c10::intrusive_ptr<Future> future;
};

// Work of one group's thread. The caller of allreduce starts the first part;
// the thread starts the others, in the same order on every rank.
struct Queue {
  // Two groups of this host's ranks: the order in which a reduce-scatter and an
  // all-gather start may differ between ranks.
  GroupPtr scatter, gather;
  GroupPtr across;  // the ranks at this one's place on their hosts

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Pending> pending;
  bool busy = false;
  bool stops = false;
};

void FinishParts(Queue& queue, Pending& all_reduce) {
  all_reduce.scattered->wait();
  std::vector<at::Tensor> part = {all_reduce.part};
  c10d::AllreduceOptions across;
  across.timeout = all_reduce.timeout;
  queue.across->allreduce(part, across)->wait();
  c10d::AllgatherOptions within;
  within.timeout = all_reduce.timeout;
  queue.gather->_allgather_base(all_reduce.whole, all_reduce.part, within)
      ->wait();
  if (!all_reduce.whole.is_same(all_reduce.tensor)) {
    all_reduce.tensor.copy_(
        all_reduce.whole.narrow(0, 0, all_reduce.tensor.numel()));
  }
}

// Runs until the queue stops and is empty. After a failure all later
// all-reduces fail, too.
void Serve(const std::shared_ptr<Queue>& queue) {
  const at::DisableRecordFunctionGuard not_the_models_operators;
  std::exception_ptr failure;
  std::unique_lock<std::mutex> lock(queue->mutex);
  while (true) {
    queue->changed.wait(
        lock, [&] { return queue->stops || !queue->pending.empty(); });
    if (queue->pending.empty()) return;
    Pending next = std::move(queue->pending.front());
    queue->pending.pop_front();
    queue->busy = true;
    lock.unlock();
    try {
      if (failure == nullptr) FinishParts(*queue, next);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    queue->busy = false;  // before waiters wake, which may destroy the group
    lock.unlock();
    if (failure == nullptr) {
      next.future->markCompleted(std::vector<at::Tensor>{next.result});
    } else {
      next.future->setError(failure);
    }
    next = {};
    lock.lock();
  }
}

class HierarchicalProcessGroup : public c10d::ProcessGroup {
 public:
  HierarchicalProcessGroup(const GroupPtr& flat, std::shared_ptr<Queue> queue)
      : ProcessGroup(flat->getRank(), flat->getSize()),
        queue_(std::move(queue)),
        thread_(Serve, queue_) {
    setBackend(c10::kCPU, flat->getBackendType(), flat->getBackend(c10::kCPU));
    setDefaultBackend(flat->getBackendType());
  }
  // Detaches the thread where a join might never return: on the thread itself,
  // when a future's callback drops the group's last reference, and while work
  // is pending, as in a failed group, whose collectives complete only with the
  // communicator's destruction.
  ~HierarchicalProcessGroup() override {
    std::unique_lock<std::mutex> lock(queue_->mutex);
    queue_->stops = true;
    const bool joins = !queue_->busy && queue_->pending.empty() &&
                       thread_.get_id() != std::this_thread::get_id();
    queue_->changed.notify_one();
    lock.unlock();
    joins ? thread_.join() : thread_.detach();
  }

  int64_t last_start_ns() const { return last_start_ns_; }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors,
                    const c10d::AllreduceOptions& opts) override {
    last_start_ns_ = SteadyNowNs();
    if (!Divides(tensors, opts)) return ProcessGroup::allreduce(tensors, opts);
    Pending next;
    next.result = tensors[0];
    next.tensor = tensors[0].view({-1});
    const int64_t ranks = queue_->scatter->getSize();
    const int64_t count = (next.tensor.numel() + ranks - 1) / ranks;
    next.whole = next.tensor;
    if (count * ranks != next.tensor.numel()) {
      next.whole = at::zeros({count * ranks}, next.tensor.options());
      next.whole.narrow(0, 0, next.tensor.numel()).copy_(next.tensor);
    }
    next.part = at::empty({count}, next.tensor.options());
    next.future = c10::make_intrusive<Future>(
        c10::ListType::create(c10::TensorType::get()));
    auto work = c10::make_intrusive<WholeWork>(next.future);
    next.timeout = opts.timeout;
    c10d::ReduceScatterOptions within;
    within.timeout = opts.timeout;
    next.scattered =
        queue_->scatter->_reduce_scatter_base(next.part, next.whole, within);
    const std::lock_guard<std::mutex> lock(queue_->mutex);
    queue_->pending.push_back(std::move(next));
    queue_->changed.notify_one();
    return work;
  }

 private:
  // Gives the same answer on all ranks.
  static bool Divides(const std::vector<at::Tensor>& tensors,
                      const c10d::AllreduceOptions& opts) {
    return tensors.size() == 1 && tensors[0].is_cpu() &&
           tensors[0].layout() == at::kStrided && tensors[0].numel() > 0 &&
           tensors[0].is_contiguous() && tensors[0].is_floating_point() &&
           opts.reduceOp == c10d::ReduceOp::SUM;
  }

  const std::shared_ptr<Queue> queue_;
  std::atomic<int64_t> last_start_ns_{0};
  std::thread thread_;
};

// The group's ranks by host, in order of place.
std::vector<std::vector<int>> RanksByHost(const Group& group) {
  const std::vector<int>& hosts = group.communicator()->hosts();
  std::map<int, std::vector<int>> by_host;
  for (const int rank : group.ranks()) by_host[hosts[rank]].push_back(rank);
  std::vector<std::vector<int>> lists;
  for (auto& [host, ranks] : by_host) lists.push_back(std::move(ranks));
  return lists;
}

bool AreUneven(const std::vector<std::vector<int>>& hosts) {
  return std::any_of(hosts.begin(), hosts.end(), [&](const auto& ranks) {
    return ranks.size() != hosts[0].size();
  });
}

// Why an all-reduce over these hosts cannot be hierarchical; "" if it can.
std::string WhyFlat(const std::vector<std::vector<int>>& hosts) {
  if (hosts.size() == 1) return "all ranks are on one host";
  if (AreUneven(hosts)) {
    return absl::StrCat(
        "the hosts have ",
        absl::StrJoin(hosts, ", ",
                      [](std::string* out, const std::vector<int>& each) {
                        absl::StrAppend(out, each.size());
                      }),
        " ranks, and a hierarchical all-reduce needs the same number on each");
  }
  return hosts[0].size() == 1 ? "every host has one rank" : "";
}

// Seconds of a 4 MiB all-reduce: the median of three on the slowest rank.
double MeasuredSeconds(const Group& group, const Group& flat) {
  constexpr int64_t kNumbers = 1 << 20;
  std::vector<at::Tensor> data = {at::zeros({kNumbers})};
  std::vector<double> seconds;
  for (int i = 0; i < 4; ++i) {
    const SteadyTime start = SteadyNow();
    group.process_group()->allreduce(data)->wait();
    if (i > 0) seconds.push_back(absl::ToDoubleSeconds(ElapsedSince(start)));
  }
  std::sort(seconds.begin(), seconds.end());
  std::vector<at::Tensor> slowest = {at::full({1}, seconds[1], at::kDouble)};
  c10d::AllreduceOptions most;
  most.reduceOp = c10d::ReduceOp::MAX;
  flat.process_group()->allreduce(slowest, most)->wait();
  return slowest[0].item<double>();
}

std::string OverHosts(const std::vector<std::vector<int>>& hosts) {
  return absl::StrCat("hierarchical, over ", hosts.size(), " hosts of ",
                      hosts[0].size(), " ranks");
}

// Returns the faster of the two, the same on all ranks.
absl::StatusOr<ChosenAllReduce> Measure(const Group& flat,
                                        const Group& hierarchical) {
  try {
    const double of_flat = MeasuredSeconds(flat, flat);
    const double of_levels = MeasuredSeconds(hierarchical, flat);
    const bool levels = of_levels < of_flat;
    return ChosenAllReduce{
        levels ? hierarchical : flat,
        absl::StrFormat(
            "all-reduce: %s: 4 MiB take %.3g ms hierarchically and %.3g flat",
            levels ? OverHosts(RanksByHost(flat)) : "flat", of_levels * 1e3,
            of_flat * 1e3)};
  } catch (const std::exception& error) {
    return flat.communicator()->ExplainFailure(
        "measuring hierarchical and flat all-reduces", error);
  }
}

}  // namespace

absl::StatusOr<Group> HierarchicalGroup(const Group& group) {
  Communicator* const comm = group.communicator();
  const auto refuse = [](const auto&... reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("hierarchical all-reduce: ", reason...));
  };
  if (comm == nullptr || group.size() != comm->world_size())
    return refuse("the group must have all ranks of the job");
  if (!comm->device().is_cpu())
    return refuse("on a GPU, NCCL already builds its rings and trees by host");
  const std::vector<std::vector<int>> hosts = RanksByHost(group);
  const std::string why = WhyFlat(hosts);
  if (!why.empty()) return refuse(why);
  std::vector<int> within, across;
  for (const std::vector<int>& ranks : hosts) {
    if (std::count(ranks.begin(), ranks.end(), comm->rank()) > 0)
      within = ranks;
  }
  const auto place =
      std::find(within.begin(), within.end(), comm->rank()) - within.begin();
  for (const std::vector<int>& ranks : hosts) across.push_back(ranks[place]);
  auto queue = std::make_shared<Queue>();
  const std::string inside = absl::StrCat(group.name(), "_within");
  ASSIGN_OR_RETURN(const Group scatter, comm->NewGroup(inside, within));
  ASSIGN_OR_RETURN(const Group gather, comm->NewGroup(inside, within));
  ASSIGN_OR_RETURN(
      const Group between,
      comm->NewGroup(absl::StrCat(group.name(), "_across"), across));
  queue->scatter = scatter.process_group();
  queue->gather = gather.process_group();
  queue->across = between.process_group();
  return Group(group.name(), group.ranks(), group.place(),
               c10::make_intrusive<HierarchicalProcessGroup>(
                   group.process_group(), std::move(queue)),
               comm);
}

absl::StatusOr<ChosenAllReduce> ChooseAllReduce(const Group& group,
                                                AllReduceKind kind) {
  const Communicator* const comm = group.communicator();
  if (kind == AllReduceKind::kFlat || comm == nullptr)
    return ChosenAllReduce{group, ""};
  const std::vector<std::vector<int>> hosts = RanksByHost(group);
  std::string why = WhyFlat(hosts);
  if (kind == AllReduceKind::kAuto && !comm->device().is_cpu())
    why = "NCCL already builds its rings and trees by host";
  if (!why.empty() && (kind == AllReduceKind::kAuto || !AreUneven(hosts)))
    return ChosenAllReduce{group, absl::StrCat("all-reduce: flat: ", why)};
  ASSIGN_OR_RETURN(Group hierarchical, HierarchicalGroup(group));
  if (kind == AllReduceKind::kAuto) return Measure(group, hierarchical);
  return ChosenAllReduce{std::move(hierarchical),
                         absl::StrCat("all-reduce: ", OverHosts(hosts))};
}

int64_t LastReductionStartNs(const Group& group) {
  const auto* hierarchical = dynamic_cast<const HierarchicalProcessGroup*>(
      group.process_group().get());
  return hierarchical != nullptr
             ? hierarchical->last_start_ns()
             : group.communicator()->last_collective_start_ns();
}

}  // namespace rankwise

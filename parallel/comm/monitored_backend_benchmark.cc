// What monitoring adds to a collective: compare the rows. The backend below
// completes at once, so that the call is all that is measured.
#include <memory>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/ops/ones.h"
#include "benchmark/benchmark.h"
#include "parallel/comm/collective_log.h"
#include "parallel/comm/collective_watch.h"
#include "parallel/comm/monitored_backend.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace rankwise {
namespace {

class InstantWork : public c10d::Work {
 public:
  InstantWork()
      : future_(c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()))) {
    future_->markCompleted(c10::List<at::Tensor>());
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  bool isCompleted() override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return future_;
  }

 private:
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class InstantBackend : public c10d::Backend {
 public:
  InstantBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "instant"; }
  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<InstantWork>();
  }
};

void Run(benchmark::State& state, c10d::Backend& backend) {
  std::vector<at::Tensor> tensors = {at::ones({1024})};
  for (auto _ : state) backend.allreduce(tensors)->wait();
}

void BM_AllReduceDirect(benchmark::State& state) {
  Run(state, *c10::make_intrusive<InstantBackend>());
}
BENCHMARK(BM_AllReduceDirect);

void BM_AllReduceMonitored(benchmark::State& state) {
  Run(state, *MakeMonitoredBackend(c10::make_intrusive<InstantBackend>(),
                                   std::make_shared<CollectiveLog>(),
                                   WatchCompletion::kYes));
}
BENCHMARK(BM_AllReduceMonitored);

// As under NCCL.
void BM_AllReduceAsked(benchmark::State& state) {
  const auto log = std::make_shared<CollectiveLog>();
  const auto watch =
      std::make_shared<CollectiveWatch>(CollectiveWatchConfig(), log);
  Run(state, *MakeMonitoredBackend(c10::make_intrusive<InstantBackend>(), log,
                                   WatchCompletion::kAsked, /*group=*/0,
                                   {watch, c10::kCPU}));
}
BENCHMARK(BM_AllReduceAsked);

}  // namespace
}  // namespace rankwise

// Cost of monitoring a collective: compare the rows. The backend below
// completes at once, so that only the call is measured.
#include <memory>
#include <vector>

#include "ATen/core/ivalue.h"
#include "ATen/ops/ones.h"
#include "benchmark/benchmark.h"
#include "parallel/comm/diagnosis/collective_log.h"
#include "parallel/comm/diagnosis/watchdog.h"
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
                                   std::make_shared<CollectiveLog>()));
}
BENCHMARK(BM_AllReduceMonitored);

// Polled by the watchdog, like NCCL.
void BM_AllReducePolled(benchmark::State& state) {
  const auto log = std::make_shared<CollectiveLog>();
  const auto watchdog = std::make_shared<Watchdog>(WatchdogConfig(), log);
  Run(state, *MakeMonitoredBackend(c10::make_intrusive<InstantBackend>(), log,
                                   {.watchdog = watchdog}));
}
BENCHMARK(BM_AllReducePolled);

}  // namespace
}  // namespace rankwise

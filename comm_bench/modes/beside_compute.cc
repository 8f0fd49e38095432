#include "comm_bench/modes/beside_compute.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>

#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "parallel/clock/rank_clock.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

// Seconds since it was made, on the host's clock.
class Stopwatch {
 public:
  double seconds() const { return clock_.now() - start_; }

 private:
  RankClock clock_ = HostClock();
  double start_ = clock_.now();
};

// Notes when futures complete, on whatever thread they do.
class Completions {
 public:
  explicit Completions(const Stopwatch& since) : state_(new State{since}) {}

  // False where `work` cannot tell.
  bool Watch(c10d::Work& work) {
    try {
      const auto future = work.getFuture();
      if (future == nullptr) return false;
      ++state_->pending;
      future->addCallback(
          [state = state_](c10::ivalue::Future&) {
            const double now = state->since.seconds();
            double last = state->last.load();
            while (last < now &&
                   !state->last.compare_exchange_weak(last, now)) {
            }
            --state->pending;
          },
          /*uses_future=*/false);
      return true;
    } catch (const std::exception&) {  // "getFuture not implemented"
      return false;
    }
  }

  // The last completion. Callbacks run just after waiting threads wake up.
  double Last() const {
    while (state_->pending.load() > 0) std::this_thread::yield();
    return state_->last.load();
  }

 private:
  struct State {
    Stopwatch since;
    std::atomic<int> pending{0};
    std::atomic<double> last{0};
  };
  const std::shared_ptr<State> state_;
};

// The collective's end is that of a stream which waits for it and nothing else.
void AwaitOnDevice(const Works& works, c10::Device device,
                   const Stopwatch& since, BesideTimes& times) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  const c10::Stream current = guard.getStream(device);
  const c10::Stream side = guard.getStreamFromGlobalPool(device);
  c10::Event computed(device.type()), communicated(device.type());
  computed.record(current);
  guard.exchangeStream(side);
  for (const auto& work : works) work->wait();
  communicated.record(side);
  guard.exchangeStream(current);
  for (const auto& work : works) work->wait();
  times.compute_end = times.comm_end = 0;
  while (times.compute_end == 0 || times.comm_end == 0) {
    const double now = since.seconds();
    if (times.compute_end == 0 && computed.query()) times.compute_end = now;
    if (times.comm_end == 0 && communicated.query()) times.comm_end = now;
  }
  times.end = std::max(times.compute_end, times.comm_end);
}

}  // namespace

BesideTimes RunBeside(c10d::ProcessGroup& group, const Collective* collective,
                      const Call& call, Buffers& buffers,
                      const std::function<void()>& compute) {
  BesideTimes times;
  Works works;
  const Stopwatch since;
  if (collective != nullptr) collective->start(group, call, buffers, works);
  times.compute_begin = since.seconds();
  Completions completions(since);
  bool watched = !call.device.is_cuda();
  for (size_t i = 0; i < works.size() && watched; ++i) {
    watched = completions.Watch(*works[i]);
  }
  if (compute) compute();
  times.compute_end = since.seconds();
  if (call.device.is_cuda()) {
    AwaitOnDevice(works, call.device, since, times);
    return times;
  }
  for (const auto& work : works) work->wait();
  times.end = since.seconds();
  times.comm_end_seen = watched;
  times.comm_end = works.empty() ? times.compute_begin
                   : watched     ? completions.Last()
                                 : times.end;
  return times;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/modes/overlap.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "ATen/ops/empty_like.h"
#include "ATen/ops/full.h"
#include "ATen/ops/mm.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/Event.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "comm_bench/sweep/measure.h"
#include "comm_bench/timing/agreement.h"
#include "comm_bench/timing/series.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace rankwise::comm_bench {
namespace {

// Seconds since the start of the run, which is the collective's start.
struct OverlapTimes {
  double compute_begin = 0;  // after the collective's start has returned
  double compute_end = 0;
  // End of the collective by its futures, even during the rank's computation.
  // Without futures (Gloo's messages), the return from the wait.
  double comm_end = 0;
  bool comm_end_seen = true;  // false: comm_end is the return from the wait
  double end = 0;             // of both
};

// Seconds since construction, on the host's clock.
class Stopwatch {
 public:
  double seconds() const { return clock_.now() - start_; }

 private:
  RankClock clock_ = HostClock();
  double start_ = clock_.now();
};

// Records the completion times of futures, on any thread.
class Completions {
 public:
  explicit Completions(const Stopwatch& since) : state_(new State{since}) {}

  // Returns false if `work` has no future to observe.
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
    } catch (
        const std::exception&) {  // Gloo's point-to-point Work has no future
      return false;
    }
  }

  // Returns the last completion. Callbacks run just after waiting threads wake
  // up.
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

// Observes the end of a stream that waits only for the collective.
void AwaitOnDevice(const Works& works, c10::Device device,
                   const Stopwatch& since, OverlapTimes& times) {
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

// Starts the collective, if any, then computes, if any computation is given,
// then waits. On CUDA both run on streams, and the host observes their ends by
// polling. Throws the exceptions of failed calls.
OverlapTimes RunOverlapped(c10d::ProcessGroup& group,
                           const Collective* collective, const Call& call,
                           Buffers& buffers,
                           const std::function<void()>& compute) {
  OverlapTimes times;
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

// Runs of a collective and a computation on one rank.
struct Runs {
  c10d::ProcessGroup& group;
  Control& control;
  const Collective& collective;
  const Call& call;
  Buffers buffers;

  OverlapTimes Run(bool communicate, const std::function<void()>& compute) {
    if (communicate && collective.fill != nullptr) {
      collective.fill(call, buffers);
    }
    SynchronizeDevice(call.device);
    control.Barrier();
    return RunOverlapped(group, communicate ? &collective : nullptr, call,
                         buffers, compute);
  }

  // Returns the slowest rank's median over some runs; the first is warm-up.
  double Typical(bool communicate, const std::function<void()>& compute) {
    constexpr int kRuns = 9;
    std::vector<double> seconds;
    Run(communicate, compute);
    for (int i = 0; i < kRuns; ++i) {
      seconds.push_back(Run(communicate, compute).end);
    }
    return control.Max({Median(seconds)})[0];
  }
};

// Returns the number of products that take as long as the collective; equal on
// every rank. Many successive products are slower than one, so the estimate is
// corrected by its measured duration.
int64_t CountProducts(Runs& runs, const Call& call,
                      const OverlapConfig& config) {
  constexpr double kMost = 1e6;
  constexpr int kGuesses = 3;
  const double wanted = runs.Typical(true, nullptr);
  double count = 1;
  for (int i = 0; i < kGuesses; ++i) {
    const auto products = MatrixProducts(config.gemm_size, call.device,
                                         static_cast<int64_t>(count));
    const double seconds = runs.Typical(false, products);
    count = std::clamp(std::round(count * wanted / seconds), 1.0, kMost);
  }
  return static_cast<int64_t>(count);
}

// Returns "all_reduce of 4096 bytes, float32, sum, in place,"; "barrier".
std::string Title(const OverlapRecord& call) {
  if (call.dtype.empty()) return call.collective;
  return absl::StrCat(call.collective, " of ", call.bytes, " bytes, ",
                      call.dtype, call.op.empty() ? "" : ", ", call.op,
                      call.in_place ? ", in place," : ", out of place,");
}

using Figure = double OverlapFigures::*;
constexpr Figure kFigures[] = {
    &OverlapFigures::compute_seconds,  &OverlapFigures::comm_seconds,
    &OverlapFigures::both_seconds,     &OverlapFigures::osu,
    &OverlapFigures::imb_nbc,          &OverlapFigures::hta,
    &OverlapFigures::union_seconds,    &OverlapFigures::union_share,
    &OverlapFigures::compute_slowdown, &OverlapFigures::comm_slowdown};

// Computes one iteration's figures from the seconds of each alone, and from
// both together.
OverlapFigures FiguresOf(double compute, double comm,
                         const OverlapTimes& both) {
  const TimeSpan computing = {both.compute_begin, both.compute_end};
  const TimeSpan communicating = {0, both.comm_end};
  const UnionOverlap overlap = IntervalUnionOverlap(computing, communicating);
  return {.compute_seconds = compute,
          .comm_seconds = comm,
          .both_seconds = both.end,
          .osu = OsuOverlap(both.end, compute, comm),
          .imb_nbc = ImbNbcOverlap(both.end, compute, comm),
          .hta = HtaOverlap(computing, communicating),
          .union_seconds = overlap.seconds,
          .union_share = overlap.share,
          .compute_slowdown = computing.seconds() / compute,
          .comm_slowdown = communicating.seconds() / comm};
}

void AppendLine(const std::string& title, const OverlapFigures& f,
                std::string& text) {
  absl::StrAppendFormat(
      &text,
      "  %4s %8.3f %8.3f %9.3f  %6.1f %% %6.1f %% %6.1f %% %7.3f ms %5.1f %%"
      "  %6.2f x %6.2f x\n",
      title, f.compute_seconds * 1e3, f.comm_seconds * 1e3,
      f.both_seconds * 1e3, f.osu * 100, f.imb_nbc * 100, f.hta * 100,
      f.union_seconds * 1e3, f.union_share * 100, f.compute_slowdown,
      f.comm_slowdown);
}

// Computes the figures and intervals of this rank's iterations.
OverlapRank RankOf(const std::vector<OverlapFigures>& iterations) {
  OverlapRank rank;
  for (const Figure figure : kFigures) {
    std::vector<double> values;
    for (const OverlapFigures& each : iterations) {
      values.push_back(each.*figure);
    }
    const Estimate estimate = EstimateMedian(std::move(values));
    rank.figures.*figure = estimate.value;
    rank.reaches.*figure = estimate.reach();
  }
  return rank;
}

// Returns every rank's figures, given this rank's iterations.
std::vector<OverlapRank> Exchange(const std::vector<OverlapFigures>& own,
                                  Control& control) {
  if (own.empty()) return {};
  const OverlapRank mine = RankOf(own);
  std::vector<double> numbers;
  for (const Figure figure : kFigures) {
    numbers.insert(numbers.end(), {mine.figures.*figure, mine.reaches.*figure});
  }
  std::vector<OverlapRank> ranks;
  for (const std::vector<double>& all : control.Gather(numbers)) {
    auto next = all.begin();
    OverlapRank& rank = ranks.emplace_back();
    for (const Figure figure : kFigures) {
      rank.figures.*figure = *next++;
      rank.reaches.*figure = *next++;
    }
  }
  return ranks;
}

}  // namespace

std::function<void()> MatrixProducts(int64_t size, c10::Device device,
                                     int64_t times) {
  const at::Tensor a =
      at::full({size, size}, 0.5, at::TensorOptions(at::kFloat).device(device));
  return [a, product = at::empty_like(a), times]() mutable {
    for (int64_t i = 0; i < times; ++i) at::mm_out(product, a, a);
  };
}

OverlapResult RunOverlap(c10d::ProcessGroup& group, Control& control,
                         const Collective& collective, const Call& call,
                         const OverlapConfig& config,
                         const std::atomic<bool>* stop) {
  Runs runs = {group, control, collective, call, collective.make(call)};
  OverlapResult result;
  OverlapRecord& own = result.own;
  const CallDescription described = DescribeCall(collective, call);
  own.rank = control.rank();
  own.collective = described.collective;
  own.bytes = described.bytes;
  own.dtype = described.dtype;
  own.op = described.op;
  own.in_place = described.in_place;
  std::function<void()> compute = config.compute;
  if (compute == nullptr) {
    own.gemm_size = config.gemm_size;
    result.gemms = CountProducts(runs, call, config);
    compute = MatrixProducts(config.gemm_size, call.device, result.gemms);
  }
  std::vector<OverlapFigures> figures;
  for (int64_t i = -config.warmup; i < config.iterations; ++i) {
    result.stopped = AnyStopped(control, stop);
    if (result.stopped) break;
    const OverlapTimes computed = runs.Run(false, compute);
    const OverlapTimes communicated = runs.Run(true, nullptr);
    const OverlapTimes both = runs.Run(true, compute);
    if (i < 0) continue;
    own.compute_seconds.push_back(computed.compute_end -
                                  computed.compute_begin);
    own.comm_seconds.push_back(communicated.comm_end);
    own.both_seconds.push_back(both.end);
    own.both_compute_seconds.push_back(both.compute_end - both.compute_begin);
    own.both_comm_seconds.push_back(both.comm_end);
    figures.push_back(
        FiguresOf(own.compute_seconds.back(), own.comm_seconds.back(), both));
    result.comm_ends_seen &= both.comm_end_seen;
  }
  result.ranks = Exchange(figures, control);
  return result;
}

std::string FormatOverlap(const OverlapResult& result) {
  std::string text = Title(result.own) + " next to ";
  if (result.gemms > 0) {
    absl::StrAppendFormat(&text, "%d products of %d x %d float32 matrices",
                          result.gemms, result.own.gemm_size,
                          result.own.gemm_size);
  } else {
    text += "a computation";
  }
  const size_t iterations = result.own.both_seconds.size();
  if (iterations == 0) return text + ": nothing was measured\n";
  absl::StrAppendFormat(
      &text,
      "; medians of %d iterations\n"
      "           alone ms        both ms  overlap by                          "
      "      slowed down by\n"
      "  rank  compute     comm               OSU  IMB-NBC      HTA    union "
      "of "
      "all   compute     comm\n",
      iterations);
  const bool intervals = static_cast<int64_t>(iterations) >= kFewestForInterval;
  for (size_t rank = 0; rank < result.ranks.size(); ++rank) {
    AppendLine(absl::StrCat(rank), result.ranks[rank].figures, text);
    if (intervals) AppendLine("+-", result.ranks[rank].reaches, text);
  }
  text += intervals ? "  +-: how far the 95 % interval of the median reaches\n"
                    : absl::StrCat("  no 95 % intervals below ",
                                   kFewestForInterval, " iterations\n");
  if (!result.comm_ends_seen) {
    text +=
        "  its end is seen only by waiting for it, after the computation: HTA, "
        "union and its slowdown\n  are those of the wait\n";
  }
  return text;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/modes/units.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "comm_bench/modes/overlap.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/clock/steady_time.h"
#include "parallel/device/device_event.h"
#include "parallel/sharded/order/unit_order.h"
#include "records/text.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

constexpr int kComputingAlone = -1;

// One rank's step without parameters, in the order of UnitOrder.
class ShardedStep final : public Units {
 public:
  ShardedStep(c10d::ProcessGroup& group, const std::vector<Unit>& units,
              int stage, std::function<void(double seconds)> compute)
      : group_(group),
        units_(units),
        stage_(stage),
        compute_(std::move(compute)),
        gathers_(units.size()),
        reductions_(units.size()) {}

  void Run(int prefetch) {
    sent_bytes_ = 0;
    communicates_ = prefetch != kComputingAlone;
    const size_t count = units_.size();
    UnitOrder order(*this, count,
                    {.zero = stage_, .prefetch = std::max(prefetch, 0)});
    for (size_t unit = 0; unit < count; ++unit) order.AddSection({unit});
    for (size_t unit = 0; unit < count; ++unit) {
      order.BeginForward(unit);
      Compute(units_[unit].compute_seconds);
      order.EndForward(unit, /*trains=*/true);
    }
    for (size_t unit = count; unit-- > 0;) {
      order.BeginBackward(unit);
      Compute(2 * units_[unit].compute_seconds);
      order.FinishUnit(unit, /*reduces=*/true);
    }
    order.EndBackward();
    order.EndStep(/*updates=*/true);
  }

  double sent_bytes() const { return sent_bytes_; }

 private:
  struct Exchange {
    bool started = false;
    Buffers buffers = {};
    Works works = {};
  };

  bool Gathered(size_t unit) const override { return gathers_[unit].started; }
  void StartGather(size_t unit) override {
    Start(all_gather_, units_[unit].gather, gathers_[unit]);
  }
  void FinishGather(size_t unit) override { Await(gathers_[unit]); }
  void Invalidate(size_t unit) override { gathers_[unit] = {}; }
  void StartReduce(size_t unit) override {
    Start(reduce_scatter_, units_[unit].reduce, reductions_[unit]);
  }
  void FinishReduce(size_t unit) override {
    Await(reductions_[unit]);
    reductions_[unit] = {};
  }

  void Compute(double seconds) {
    if (seconds > 0) compute_(seconds);
  }

  void Start(const Collective& collective, const Call& call,
             Exchange& exchange) {
    exchange.started = true;
    if (!communicates_) return;
    exchange.buffers = collective.make(call);
    exchange.buffers.input.zero_();
    collective.start(group_, call, exchange.buffers, exchange.works);
    sent_bytes_ +=
        static_cast<double>(call.bytes()) * collective.bus_factor(call);
  }

  static void Await(Exchange& exchange) {
    for (const auto& work : exchange.works) work->wait();
    exchange.works.clear();
  }

  const Collective& all_gather_ = **FindCollective("all_gather");
  const Collective& reduce_scatter_ = **FindCollective("reduce_scatter");
  c10d::ProcessGroup& group_;
  const std::vector<Unit>& units_;
  const int stage_;
  const std::function<void(double seconds)> compute_;
  std::vector<Exchange> gathers_, reductions_;  // by unit
  bool communicates_ = true;
  double sent_bytes_ = 0;
};

// Returns a function that computes for about the given number of seconds, with
// equal work on every rank.
std::function<void(double seconds)> ProductsFor(Control& control, int64_t size,
                                                c10::Device device) {
  constexpr int kWarmUp = 3, kTimed = 10;
  const std::function<void()> product = MatrixProducts(size, device, 1);
  for (int i = 0; i < kWarmUp; ++i) product();
  SynchronizeDevice(device);
  const double begin = SteadySeconds();
  for (int i = 0; i < kTimed; ++i) product();
  SynchronizeDevice(device);
  const double seconds = control.Max({SteadySeconds() - begin})[0] / kTimed;
  return [product, seconds](double wanted) {
    const double count = std::max(std::round(wanted / seconds), 1.0);
    for (double i = 0; i < count; ++i) product();
  };
}

UnitsWay MakeWay(int prefetch, const Control& control) {
  UnitsWay way;
  way.prefetch = prefetch;
  way.own.collective = "units";
  way.own.layer = prefetch == kComputingAlone
                      ? "computing"
                      : absl::StrCat("prefetch_", prefetch);
  way.own.rank = control.rank();
  way.own.group_size = control.world_size();
  return way;
}

// Runs all iterations; the first of each way is warm-up.
void Measure(ShardedStep& step, Control& control, c10::Device device,
             const UnitsConfig& config, const std::atomic<bool>* stop,
             UnitsResult& result) {
  const RankClock clock = HostClock();
  const double begin = clock.now();
  for (int64_t i = -1; i < config.iterations; ++i) {
    result.stopped = AnyStopped(control, stop);
    if (result.stopped) return;
    for (UnitsWay& way : result.ways) {
      control.Barrier();
      const double start = clock.now();
      step.Run(way.prefetch);
      SynchronizeDevice(device);
      if (i < 0) continue;
      way.own.start_seconds.push_back(start - begin);
      way.own.seconds.push_back(clock.now() - start);
    }
    result.iterations = i + 1;
    result.sent_bytes = step.sent_bytes();
  }
}

std::string Milliseconds(double seconds) {
  return std::isnan(seconds) ? "-" : absl::StrFormat("%.3f", seconds * 1e3);
}

void AppendUnit(const std::string& name, int64_t bytes, const UnitTimes& times,
                std::string& text) {
  absl::StrAppendFormat(&text, "  %-12s%12.3f%14s%16s\n", name,
                        static_cast<double>(bytes) / (1 << 20),
                        Milliseconds(times.gather), Milliseconds(times.reduce));
}

// Consecutive units of equal size share a line.
std::string UnitsTable(const std::vector<Unit>& units,
                       const std::vector<UnitTimes>& alone, int stage) {
  std::string text = absl::StrFormat("  %-12s%12s%14s%16s\n", "unit", "MiB",
                                     "all-gather", "reduce-scatter");
  int64_t bytes = 0;
  UnitTimes sum;
  const size_t count = units.size();
  for (size_t unit = 0; unit < count; ++unit) {
    bytes += units[unit].gather.bytes();
    const bool gathered_twice = stage == 3 && unit + 1 < count;
    sum.gather += alone[unit].gather * (gathered_twice ? 2 : 1);
    sum.reduce += alone[unit].reduce;
  }
  for (size_t first = 0, next = 0; first < count; first = next) {
    const int64_t size = units[first].gather.bytes();
    while (next < count && units[next].gather.bytes() == size) ++next;
    AppendUnit(next == first + 1 ? absl::StrCat(first)
                                 : absl::StrCat(first, " to ", next - 1),
               size, alone[first], text);
  }
  AppendUnit("sum of step", bytes, sum, text);
  return text;
}

std::string SentText(const std::vector<Unit>& units, int stage,
                     double sent_bytes) {
  double bytes = 0;
  for (const Unit& unit : units)
    bytes += static_cast<double>(unit.gather.bytes());
  const int ranks = units[0].gather.world_size;
  const int factor = stage == 3 ? 3 : 2;
  return absl::StrFormat(
      "  a rank sends %.3f MB a step; %d (n-1)/n of the parameters are %.3f "
      "MB%s\n",
      sent_bytes * 1e-6, factor, factor * bytes * (ranks - 1) / ranks * 1e-6,
      stage == 3 ? "; the last unit is not gathered again for backward" : "");
}

}  // namespace

UnitsResult RunUnits(c10d::ProcessGroup& group, Control& control,
                     const std::vector<Unit>& units, const UnitsConfig& config,
                     const std::atomic<bool>* stop) {
  const c10::Device device = units[0].gather.device;
  std::function<void(double)> compute = config.compute;
  if (compute == nullptr)
    compute = ProductsFor(control, config.gemm_size, device);
  ShardedStep step(group, units, config.stage, std::move(compute));
  UnitsResult result;
  result.ways = {MakeWay(kComputingAlone, control), MakeWay(0, control)};
  if (config.prefetch > 0)
    result.ways.push_back(MakeWay(config.prefetch, control));
  Measure(step, control, device, config, stop, result);
  for (UnitsWay& way : result.ways) {
    way.own.end = EndName(result.stopped ? Series::End::kInterrupted
                                         : Series::End::kCounted);
    if (result.iterations > 0)
      way.step = EstimateMedian(control.Max(way.own.seconds));
  }
  return result;
}

std::string FormatUnits(const std::vector<Unit>& units,
                        const std::vector<UnitTimes>& alone,
                        const UnitsConfig& config, const UnitsResult& result) {
  std::string text = absl::StrFormat(
      "\nunits of ZeRO %d, %s; calls by themselves, milliseconds\n%s"
      "\nsteps, medians of %d iterations of the slowest rank, milliseconds; "
      "+-: 95 %% intervals\n"
      "  %-12s%12s%12s%12s%12s\n",
      config.stage, Counted(units[0].gather.world_size, "rank"),
      UnitsTable(units, alone, config.stage), result.iterations, "", "step",
      "+-", "exposed", "+-");
  const Estimate& computing = result.ways[0].step;
  for (const UnitsWay& way : result.ways) {
    const Estimate exposed = Difference(way.step, computing);
    const bool communicates = way.prefetch != kComputingAlone;
    absl::StrAppendFormat(
        &text, "  %-12s%12s%12s%12s%12s\n",
        communicates ? absl::StrCat("prefetch ", way.prefetch) : "computing",
        Milliseconds(way.step.value), Milliseconds(way.step.reach()),
        communicates ? Milliseconds(exposed.value) : "-",
        communicates ? Milliseconds(exposed.reach()) : "-");
  }
  return text + SentText(units, config.stage, result.sent_bytes);
}

}  // namespace rankwise::comm_bench

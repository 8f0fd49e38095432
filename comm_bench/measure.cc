#include "comm_bench/measure.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm_bench/cache_eviction.h"
#include "comm_bench/device_sync.h"
#include "comm_bench/element_types.h"
#include "comm_bench/end_name.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise {
namespace {

// The calls of one iteration, each with buffers of its own.
class Calls {
 public:
  Calls(c10d::ProcessGroup& group, const Collective& collective,
        const Call& call, int in_flight)
      : group_(group), collective_(collective), call_(call) {
    for (int i = 0; i < in_flight; ++i)
      buffers_.push_back(collective.make(call));
  }

  void Fill() {
    for (Buffers& buffers : buffers_) collective_.fill(call_, buffers);
  }

  void Run() {
    for (Buffers& buffers : buffers_)
      collective_.start(group_, call_, buffers, works_);
    for (const auto& work : works_) work->wait();
    works_.clear();
    // A wait for NCCL only orders streams.
    SynchronizeDevice(call_.device);
  }

  // The first wrong element; `total` counts those of all buffers.
  std::optional<WrongElement> Check() const {
    std::optional<WrongElement> first;
    for (const Buffers& buffers : buffers_) {
      const std::optional<WrongElement> wrong =
          collective_.check(call_, buffers);
      if (!wrong.has_value()) continue;
      if (first.has_value()) {
        first->total += wrong->total;
      } else {
        first = wrong;
      }
    }
    return first;
  }

 private:
  c10d::ProcessGroup& group_;
  const Collective& collective_;
  const Call& call_;
  std::vector<Buffers> buffers_;
  Works works_;
};

std::string Describe(const Row& row, const WrongElement& wrong, int rank,
                     const char* when) {
  const std::string shape =
      row.count == 0 ? ""
                     : absl::StrCat(" of ", row.bytes, " bytes ", row.dtype,
                                    row.op.empty() ? "" : " ", row.op);
  return absl::StrCat(row.collective, shape, ": rank ", rank, " has ",
                      wrong.total, " wrong element",
                      wrong.total == 1 ? "" : "s", " ", when,
                      " timing; the first at index ", wrong.index,
                      ": expected ", wrong.expected, ", got ", wrong.got);
}

// Counts wrong elements over both checks.
class Verification {
 public:
  Verification(Calls& calls, Control& control, const Row& row)
      : calls_(calls), control_(control), row_(row) {}

  // Runs the calls once and checks them on all ranks.
  void Run(const char* when) {
    calls_.Fill();
    calls_.Run();
    const WrongElement own = calls_.Check().value_or(WrongElement{.total = 0});
    own_ += own.total;
    const auto all = control_.Gather({static_cast<double>(own.total),
                                      static_cast<double>(own.index),
                                      own.expected, own.got});
    for (int rank = 0; rank < control_.world_size(); ++rank) {
      const WrongElement wrong = {.index = static_cast<int64_t>(all[rank][1]),
                                  .expected = all[rank][2],
                                  .got = all[rank][3],
                                  .total = static_cast<int64_t>(all[rank][0])};
      total_ += wrong.total;
      if (wrong.total > 0 && first_.empty())
        first_ = Describe(row_, wrong, rank, when);
    }
  }

  void AddTo(Measurement& measurement) const {
    measurement.samples.wrong = own_;
    measurement.row.wrong = total_;
    measurement.wrong = first_;
  }

 private:
  Calls& calls_;
  Control& control_;
  const Row row_;
  int64_t own_ = 0, total_ = 0;
  std::string first_;
};

Summary PerCall(Summary iteration, double calls) {
  for (double* seconds :
       {&iteration.min, &iteration.median, &iteration.p95, &iteration.p99,
        &iteration.max, &iteration.median_low, &iteration.median_high}) {
    *seconds /= calls;
  }
  return iteration;
}

Row DescribeRow(const Collective& collective, const Call& call,
                const std::vector<int>& ranks) {
  Row row;
  row.collective = collective.name;
  row.layer = "c10d";
  row.ranks = ranks;
  row.count = call.count;
  row.bytes = call.count * static_cast<int64_t>(c10::elementSize(call.dtype));
  if (collective.has_elements) row.dtype = DtypeName(call.dtype);
  if (collective.reduces) row.op = OpName(call.op);
  if (collective.rooted) row.root = call.root;
  row.in_place = call.in_place;
  return row;
}

std::string SyncName(Sync sync) {
  if (sync == Sync::kWindow) return "window";
  return sync == Sync::kNone ? "none" : "barrier";
}

CollectiveRecord SamplesOf(const Row& row, const Series& series, int rank,
                           double calls, const MeasureConfig& config) {
  CollectiveRecord samples;
  samples.rank = rank;
  samples.collective = row.collective;
  samples.layer = row.layer;
  samples.ranks.assign(row.ranks.begin(), row.ranks.end());
  samples.bytes = row.bytes;
  samples.count = row.count;
  samples.dtype = row.dtype;
  samples.op = row.op;
  samples.root = row.root;
  samples.in_place = row.in_place;
  samples.sync = SyncName(config.timing.sync);
  samples.launch = config.launch;
  samples.trips = calls;
  samples.end = EndName(series.end);
  samples.seconds = series.seconds[rank];
  samples.start_seconds = series.start_seconds[rank];
  samples.late = series.late;
  samples.clock_error_seconds = series.clock_error_seconds;
  return samples;
}

}  // namespace

Measurement Assemble(Row row, const Series& series, int rank, double calls,
                     double bus_factor, const MeasureConfig& config) {
  row.time = PerCall(Summarize(series, config.timing.across), calls);
  row.end = series.end;
  if (row.bytes > 0 && row.time.median > 0) {
    row.algbw = static_cast<double>(row.bytes) / row.time.median * 1e-9;
    row.busbw = row.algbw * bus_factor;
  }
  Measurement measurement;
  measurement.samples = SamplesOf(row, series, rank, calls, config);
  measurement.row = std::move(row);
  return measurement;
}

Measurement MeasureRow(c10d::ProcessGroup& group, Control& control,
                       const Collective& collective, const Call& call,
                       const std::vector<int>& ranks,
                       const MeasureConfig& config,
                       const std::atomic<bool>* stop) {
  const Row row = DescribeRow(collective, call, ranks);
  Calls calls(group, collective, call, config.in_flight);
  Verification verification(calls, control, row);
  if (config.check) {
    verification.Run("before");
  } else {
    calls.Fill();
  }
  TimingConfig timing = config.timing;
  std::unique_ptr<CacheEviction> eviction;
  if (config.cold) {
    eviction = std::make_unique<CacheEviction>();
    timing.before_each = [&eviction] { eviction->Evict(); };
  }
  const Series series = TimeIterations(
      control, [&calls](int64_t) { calls.Run(); }, timing, stop);
  if (config.check) verification.Run("after");
  const double bus_factor = collective.bus_factor == nullptr
                                ? 1
                                : collective.bus_factor(call.world_size);
  Measurement measurement =
      Assemble(row, series, control.rank(), collective.trips * config.in_flight,
               bus_factor, config);
  measurement.samples.in_flight = config.in_flight;
  measurement.samples.cache = config.cold ? "cold" : "hot";
  if (config.check) verification.AddTo(measurement);
  return measurement;
}

}  // namespace rankwise

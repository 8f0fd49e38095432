#include "comm_bench/sweep/measure.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm_bench/collectives/element_types.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/output/end_name.h"
#include "comm_bench/sweep/agreement.h"
#include "comm_bench/timing/cache_eviction.h"

namespace rankwise::comm_bench {
namespace {

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

// Libraries connect, and choose, at the first call of a shape.
void WarmUpLibraries(Calls& calls) {
  calls.Fill();
  calls.Run();
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

Row DescribeRow(const Layer& layer, const Collective& collective,
                const Call& call, const std::vector<int>& ranks,
                const MeasureConfig& config) {
  Row row;
  row.collective = collective.name;
  row.layer = layer.name();
  row.events = config.events;
  row.graph = config.graph;
  row.registered = config.registered;
  row.ranks = ranks;
  row.group_size = call.world_size;
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
                           double calls, double bus_factor,
                           const MeasureConfig& config) {
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
  samples.timing = row.events ? "events" : "host";
  samples.graph = row.graph;
  samples.registered = row.registered;
  samples.algorithm = row.algorithm;
  samples.protocol = row.protocol;
  samples.bus_factor = bus_factor;
  samples.group_size = row.group_size;
  return samples;
}

// Null where buffers are the usual ones.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> MemoryFor(
    Layer& layer, Control& control, const Collective& collective,
    const Call& call, const MeasureConfig& config) {
  if (!config.registered) return nullptr;
  Calls first(layer, collective, call, /*in_flight=*/1);
  WarmUpLibraries(first);
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory =
      layer.NewRegistered(call.device);
  absl::Status all = AllOk(control, memory.status(), "register its buffers");
  if (!all.ok()) return all;
  return memory;
}

// Fills, and checks if it is asked for.
void FirstRun(Calls& calls, Verification& verification,
              const MeasureConfig& config) {
  if (config.check) {
    verification.Run("before");
    return;
  }
  calls.Fill();
  if (config.choices) calls.Run();
}

// Records the calls, if they are to be, and runs them once. Returns what NCCL
// has logged meanwhile.
absl::StatusOr<std::string> Prepare(Calls& calls, Verification& verification,
                                    Control& control,
                                    const MeasureConfig& config) {
  if (config.graph) WarmUpLibraries(calls);
  if (config.nccl_log != nullptr) config.nccl_log->On();
  absl::Status captured;
  if (config.graph) {
    captured =
        AllOk(control, calls.Capture(config.make_graph), "record its calls");
  }
  if (captured.ok()) FirstRun(calls, verification, config);
  std::string log = config.nccl_log == nullptr ? "" : config.nccl_log->Off();
  if (!captured.ok()) return captured;
  if (config.choices) calls.Run();  // NCCL notices that its log is off
  return log;
}

absl::Status Refused(const Collective& collective, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("--cuda_graph: ", collective.name,
                                   " cannot be recorded: ", why.message()));
}

// `own` of rank `from`; at most kLongest characters of it.
std::string TextOf(Control& control, const std::string& own, size_t from) {
  constexpr size_t kLongest = 80;
  std::vector<double> letters(kLongest, 0);
  std::copy_n(own.begin(), std::min(own.size(), kLongest), letters.begin());
  std::string text;
  const std::vector<std::vector<double>> all = control.Gather(letters);
  for (const double letter : all[from]) {
    if (letter != 0) text += static_cast<char>(letter);
  }
  return text;
}

// NCCL logs on the first rank of a group only.
void Note(const std::string& log, Control& control,
          const std::vector<int>& ranks, Row& row) {
  const size_t first = ranks.empty() ? 0 : static_cast<size_t>(ranks[0]);
  const ChosenNames names = NamesOf(ParseNcclLog(log));
  row.algorithm = TextOf(control, names.algorithm, first);
  row.protocol = TextOf(control, names.protocol, first);
}

Series TimeCalls(Calls& calls, Control& control, const MeasureConfig& config,
                 const std::atomic<bool>* stop) {
  TimingConfig timing = config.timing;
  std::unique_ptr<CacheEviction> eviction;
  if (config.cold) {
    eviction = std::make_unique<CacheEviction>();
    timing.before_each = [&eviction] { eviction->Evict(); };
  }
  if (!config.events) {
    return TimeIterations(
        control, [&](int64_t) { calls.RunRounds(); }, timing, stop);
  }
  double seconds = 0;
  timing.own_seconds = [&seconds] { return seconds; };
  return TimeIterations(
      control, [&](int64_t) { seconds = calls.TimeRounds(); }, timing, stop);
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
  measurement.samples = SamplesOf(row, series, rank, calls, bus_factor, config);
  measurement.row = std::move(row);
  return measurement;
}

absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop) {
  Row row = DescribeRow(layer, collective, call, ranks, config);
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory =
      MemoryFor(layer, control, collective, call, config);
  if (!memory.ok()) return memory.status();
  Calls calls(layer, collective, call, config.in_flight, memory->get());
  Verification verification(calls, control, row);
  const absl::StatusOr<std::string> log =
      Prepare(calls, verification, control, config);
  if (!log.ok()) return Refused(collective, log.status());
  if (config.choices) Note(*log, control, ranks, row);

  const Series series = TimeCalls(calls, control, config, stop);
  if (config.check) verification.Run("after");
  const double bus_factor = collective.bus_factor == nullptr
                                ? 1
                                : collective.bus_factor(call.world_size);
  Measurement measurement = Assemble(
      row, series, control.rank(),
      collective.trips * config.in_flight * calls.rounds(), bus_factor, config);
  measurement.samples.in_flight = config.in_flight;
  measurement.samples.cache = config.cold ? "cold" : "hot";
  if (config.check) verification.AddTo(measurement);
  return measurement;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/sweep/measure.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "comm_bench/timing/agreement.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Evicts data from the processor's caches.
class CacheEviction {
 public:
  // Uses twice the last-level cache size reported by the kernel; 64 MiB if it
  // reports none.
  CacheEviction() : memory_(BytesToWrite()) {}

  // Writes to every cache line of that memory, so that no other data stays
  // cached.
  void Evict() {
    constexpr size_t kLine = 64;
    // volatile: the written values are never read.
    volatile unsigned char* memory = memory_.data();
    for (size_t i = 0; i < memory_.size(); i += kLine)
      memory[i] = memory[i] + 1;
  }

 private:
  static size_t BytesToWrite() {
    constexpr size_t kUnknown = size_t{64} << 20;
    const long last = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE),
                               ::sysconf(_SC_LEVEL2_CACHE_SIZE));
    return last > 0 ? 2 * static_cast<size_t>(last) : kUnknown;
  }

  std::vector<unsigned char> memory_;
};

std::string Describe(const CallDescription& call, const WrongElement& wrong,
                     int rank, const char* when) {
  const std::string shape =
      call.count == 0 ? ""
                      : absl::StrCat(" of ", call.bytes, " bytes ", call.dtype,
                                     call.op.empty() ? "" : " ", call.op);
  return absl::StrCat(call.collective, shape, ": rank ", rank, " has ",
                      Counted(wrong.total, "wrong element"), " ", when,
                      " timing; the first at index ", wrong.index,
                      ": expected ", wrong.expected, ", got ", wrong.got);
}

// Libraries connect, and choose algorithms, at the first call of a shape.
void WarmUpLibraries(Calls& calls) {
  calls.Fill();
  calls.Run();
}

// Returns the job's rank at index `place` of `control`, which may contain only
// the group.
int RankInJob(const CallDescription& call, const Control& control, int place) {
  const bool is_groups =
      call.ranks.size() == static_cast<size_t>(control.world_size());
  return is_groups ? static_cast<int>(call.ranks[place]) : place;
}

// Counts wrong elements over both checks.
struct Verification {
  Calls& calls;
  Control& control;
  const CallDescription& call;
  int64_t own_wrong = 0, total_wrong = 0;  // of this rank, and of all
  std::string first = "";

  // Runs the calls once and checks them on all ranks.
  void Run(const char* when) {
    calls.Fill();
    calls.Run();
    const WrongElement own = calls.Check().value_or(WrongElement{.total = 0});
    own_wrong += own.total;
    total_wrong +=
        static_cast<int64_t>(control.Sum({static_cast<double>(own.total)})[0]);
    const int place = FirstRankWith(control, own.total > 0);
    if (place < 0 || !first.empty()) return;
    first = TextFrom(
        control,
        Describe(call, own, RankInJob(call, control, control.rank()), when),
        place);
  }

  void AddTo(Measurement& measurement) const {
    measurement.row.record.wrong = own_wrong;
    measurement.row.wrong = total_wrong;
    measurement.wrong = first;
  }
};

Summary PerCall(Summary iteration, double calls) {
  for (double* seconds :
       {&iteration.min, &iteration.median, &iteration.p95, &iteration.p99,
        &iteration.max, &iteration.median_low, &iteration.median_high}) {
    *seconds /= calls;
  }
  return iteration;
}

std::string SyncName(Sync sync) {
  if (sync == Sync::kWindow) return "window";
  return sync == Sync::kNone ? "none" : "barrier";
}

// Returns nullptr for ordinary buffers.
absl::StatusOr<std::unique_ptr<RegisteredMemory>> MemoryFor(
    Layer& layer, Control& control, const Collective& collective,
    const Call& call, const MeasureConfig& config) {
  if (!config.registered) return nullptr;
  Calls first(layer, collective, call, /*in_flight=*/1);
  WarmUpLibraries(first);
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> memory =
      layer.NewRegistered(call.device);
  RETURN_IF_ERROR(AllOk(control, memory.status(), "register its buffers"));
  return memory;
}

// Runs the calls once, and checks them if configured.
void FirstRun(Calls& calls, Verification& verification,
              const MeasureConfig& config) {
  if (config.check) {
    verification.Run("before");
    return;
  }
  calls.Fill();
  if (config.choices) calls.Run();
}

// Captures the calls, if configured, and runs them once. Returns NCCL's log of
// that run.
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
  if (config.choices) calls.Run();  // NCCL notices that its log is disabled
  return log;
}

absl::Status Refused(const Collective& collective, const absl::Status& why) {
  return absl::Status(why.code(),
                      absl::StrCat("--cuda_graph: ", collective.name,
                                   " cannot be recorded: ", why.message()));
}

// NCCL logs only on the first rank of a group.
void NoteChoices(const std::string& log, Control& control,
                 CallDescription& call) {
  const NcclChoices own = ParseNcclLog(log);
  const bool is_place_0 =
      call.ranks.empty() || RankInJob(call, control, 0) == call.ranks[0];
  const int first = is_place_0 ? 0 : static_cast<int>(call.ranks[0]);
  call.algorithm = GatherTexts(control, own.algorithm)[first];
  call.protocol = GatherTexts(control, own.protocol)[first];
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

CallDescription DescribeCall(const Collective& collective, const Call& call) {
  CallDescription described;
  described.collective = collective.name;
  described.count = call.count;
  described.bytes = call.bytes();
  if (collective.has_elements) described.dtype = DtypeName(call.dtype);
  if (collective.reduces) described.op = OpName(call.op);
  if (collective.rooted) described.root = call.root;
  described.in_place = call.in_place;
  described.bus_factor = collective.bus_factor(call);
  described.group_size = call.world_size;
  return described;
}

Row Assemble(const CallDescription& call, const Series& series, int rank,
             const MeasureConfig& config) {
  Row row;
  row.time = PerCall(Summarize(series, config.timing.across),
                     call.calls_per_iteration);
  row.end = series.end;
  if (call.bytes > 0 && row.time.median > 0) {
    row.algbw = static_cast<double>(call.bytes) / row.time.median * 1e-9;
    row.busbw = row.algbw * call.bus_factor;
  }
  CollectiveRecord& record = row.record;
  static_cast<CallDescription&>(record) = call;
  record.sync = SyncName(config.timing.sync);
  record.rank = rank;
  record.launch = config.launch;
  record.end = EndName(series.end);
  record.seconds = series.seconds;
  record.start_seconds = series.start_seconds;
  record.late = series.late;
  record.clock_error_seconds = series.clock_error_seconds;
  return row;
}

absl::StatusOr<Measurement> MeasureRow(Layer& layer, Control& control,
                                       const Collective& collective,
                                       const Call& call,
                                       const std::vector<int>& ranks,
                                       const MeasureConfig& config,
                                       const std::atomic<bool>* stop) {
  CallDescription described = DescribeCall(collective, call);
  described.layer = layer.name();
  described.ranks.assign(ranks.begin(), ranks.end());
  described.concurrent_groups = control.world_size() / call.world_size;
  described.in_flight = config.in_flight;
  described.cache = config.cold ? "cold" : "hot";
  described.timing = config.events ? "events" : "host";
  described.graph = config.graph;
  described.registered = config.registered;
  ASSIGN_OR_RETURN(std::unique_ptr<RegisteredMemory> memory,
                   MemoryFor(layer, control, collective, call, config));
  Calls calls(layer, collective, call, config.in_flight, memory.get());
  Verification verification = {calls, control, described};
  const absl::StatusOr<std::string> log =
      Prepare(calls, verification, control, config);
  if (!log.ok()) return Refused(collective, log.status());
  if (config.choices) NoteChoices(*log, control, described);
  const Series series = TimeCalls(calls, control, config, stop);
  if (config.check) verification.Run("after");
  described.calls_per_iteration =
      collective.calls_per_iteration * config.in_flight * calls.rounds();
  Measurement measurement;
  const int own_rank = RankInJob(described, control, control.rank());
  measurement.row = Assemble(described, series, own_rank, config);
  if (config.check) verification.AddTo(measurement);
  return measurement;
}

}  // namespace rankwise::comm_bench

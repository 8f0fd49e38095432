#include "comm_bench/sweep/measure.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/cost_fit.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/communicator.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

// Empties the processor's caches of what they hold.
class CacheEviction {
 public:
  // Twice the last-level cache, as the kernel tells its size; 64 MiB where it
  // does not.
  CacheEviction() : memory_(BytesToWrite()) {}

  // Writes to every cache line of that memory, so that no line of anything else
  // stays cached.
  void Evict() {
    constexpr size_t kLine = 64;
    // volatile: nobody reads what is written.
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

// Libraries connect, and choose, at the first call of a shape.
void WarmUpLibraries(Calls& calls) {
  calls.Fill();
  calls.Run();
}

// Counts wrong elements over both checks.
struct Verification {
  Calls& calls;
  Control& control;
  const CallDescription& call;
  int64_t own_wrong = 0, total_wrong = 0;  // elements: of this rank, of all
  std::string first = "";

  // Runs the calls once and checks them on all ranks.
  void Run(const char* when) {
    calls.Fill();
    calls.Run();
    const WrongElement own = calls.Check().value_or(WrongElement{.total = 0});
    own_wrong += own.total;
    const auto all =
        control.Gather({static_cast<double>(own.total),
                        static_cast<double>(own.index), own.expected, own.got});
    for (int rank = 0; rank < control.world_size(); ++rank) {
      const WrongElement wrong = {.index = static_cast<int64_t>(all[rank][1]),
                                  .expected = all[rank][2],
                                  .got = all[rank][3],
                                  .total = static_cast<int64_t>(all[rank][0])};
      total_wrong += wrong.total;
      if (wrong.total > 0 && first.empty())
        first = Describe(call, wrong, rank, when);
    }
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

// Null where buffers are the usual ones.
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

// Fills, and checks where that is configured.
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

// NCCL logs on the first rank of a group only.
void NoteChoices(const std::string& log, Control& control,
                 CallDescription& call) {
  const NcclChoices own = ParseNcclLog(log);
  const size_t first = call.ranks.empty() ? 0 : call.ranks[0];
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

// The ranks of this rank's group; empty: all.
std::vector<int> GroupOf(const BenchRank& rank, int size) {
  std::vector<int> ranks;
  if (size == rank.world_size()) return ranks;
  const int number = rank.rank() / size;
  for (int i = 0; i < size; ++i) ranks.push_back(number * size + i);
  return ranks;
}

absl::StatusOr<std::unique_ptr<Layer>> ConnectLayer(
    const BenchConfig& config, const BenchRank& rank,
    const std::vector<int>& ranks, int size) {
  if (config.layer == "nccl") {
    return ConnectNcclLayer(*rank.control, ranks, rank.device);
  }
  if (ranks.empty()) return MakeC10dLayer(rank.group);
  ASSIGN_OR_RETURN(
      auto group,
      rank.comm->NewGroup(absl::StrCat("group", rank.rank() / size), ranks));
  return MakeC10dLayer(group.process_group());
}

// Measures the rows of one sweep, one after the other.
struct Sweep {
  const BenchConfig& config;
  const Plan& plan;
  const BenchRank& rank;
  const std::vector<int>& ranks;  // of the group; empty: all
  const MeasureConfig& measure;
  Layer& layer;
  int rows = 0, wrong_rows = 0;
  std::string first_wrong = "";

  // Prints one block, with the fit of its costs below it.
  absl::Status RunCase(const SweepCase& item) {
    std::vector<CostPoint> points;
    for (const SizedCall& next : CallsOf(item, config, plan)) {
      rank.output->Print(next.note);
      if (next.repeats) continue;
      ASSIGN_OR_RETURN(const Row row, RunRow(*item.collective, next.call));
      points.push_back(
          {static_cast<double>(row.call().bytes), row.time.median});
      if (row.end == Series::End::kInterrupted) return Interrupted(rows, "row");
    }
    const absl::StatusOr<CostFit> fit = FitCost(points);
    if (fit.ok())
      rank.output->Print(absl::StrCat("# ", FormatCostFit(*fit), "\n"));
    return absl::OkStatus();
  }

  // OK, or how much was wrong in all blocks.
  absl::Status Verdict() const {
    if (wrong_rows == 0) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat(wrong_rows, " of ", Counted(rows, "row"),
                     " had wrong results; ", first_wrong));
  }

  absl::StatusOr<Row> RunRow(const Collective& collective, Call call) {
    call.rank = layer.rank();
    call.device = rank.device;
    ASSIGN_OR_RETURN(Measurement measured,
                     MeasureRow(layer, *rank.control, collective, call, ranks,
                                measure, rank.stop));
    Row& row = measured.row;
    if (row.record.seconds.empty()) return row;  // interrupted
    if (rank.peer_bytes_per_second > 0)
      row.peer_share = row.busbw * 1e9 / rank.peer_bytes_per_second;
    ++rows;
    RETURN_IF_ERROR(rank.output->Add(row));
    if (!measured.wrong.empty()) {
      ++wrong_rows;
      if (first_wrong.empty()) first_wrong = measured.wrong;
      rank.output->Print(absl::StrCat("# WRONG: ", measured.wrong, "\n"));
    }
    return row;
  }
};

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
  described.bus_factor = collective.bus_factor(call.world_size);
  described.group_size = call.world_size;
  return described;
}

Row Assemble(const CallDescription& call, const Series& series, int rank,
             const MeasureConfig& config) {
  Row row;
  row.time = PerCall(Summarize(series, config.timing.across), call.trips);
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
  described.trips = collective.trips * config.in_flight * calls.rounds();
  Measurement measurement;
  measurement.row = Assemble(described, series, control.rank(), config);
  if (config.check) verification.AddTo(measurement);
  return measurement;
}

absl::Status Interrupted(int64_t count, absl::string_view what) {
  return absl::CancelledError(
      absl::StrCat("interrupted; ", Counted(count, what),
                   count == 1 ? " was measured" : " were measured"));
}

void PrintLeftOut(const Plan& plan, const BenchRank& rank) {
  for (const std::string& reason : plan.left_out)
    rank.output->Print(absl::StrCat("# left out: ", reason, "\n"));
}

absl::Status RunSweep(const BenchConfig& config, const Plan& plan,
                      const BenchRank& rank) {
  const int size = plan.traffic.world_size();
  const std::vector<int> ranks = GroupOf(rank, size);
  ASSIGN_OR_RETURN(auto layer, ConnectLayer(config, rank, ranks, size));
  PrintLeftOut(plan, rank);
  if (!ranks.empty()) {
    rank.output->Print(absl::StrCat("# ", rank.world_size() / size,
                                    " groups of ", Counted(size, "rank"),
                                    " at the same time; times over all ranks, "
                                    "bandwidths of one group\n"));
  }
  MeasureConfig measure = MeasureOn(rank.device, config);
  measure.nccl_log = measure.choices ? rank.nccl_log : nullptr;
  Sweep sweep = {config, plan, rank, ranks, measure, *layer};
  absl::Status status;
  for (const SweepCase& item : plan.cases) {
    if (status.ok()) status = sweep.RunCase(item);
  }
  rank.output->PrintLegend();
  return status.ok() ? sweep.Verdict() : status;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/sweep/plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "comm_bench/sweep/lines.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/device/device_facts.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

template <typename... Parts>
absl::Status Refuse(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

// The flags that only some modes use; every other mode refuses them.
struct FlagUse {
  const char* modes;
  const char* flags;
};

constexpr FlagUse kFlagUses[] = {
    {"sweep",
     "traffic traffic_skew group_size in_flight cache check layer cuda_graph "
     "registered nccl_choices relaunch lines"},
    {"units", "units zero prefetch compute_us"},
    {"overlap units", "gemm_size"},
    {"replay units", "replay"},
    {"sweep replay", "mesh axis"},
    {"sweep overlap", "collectives dtypes ops place root"},
    {"sweep ladder", "timing"},
    {"sweep pairs", "fake_virtual_time"},
    {"sweep units", "precision max_seconds"},
    {"sweep new_group units", "across csv"},
    {"sweep ladder overlap", "min_bytes max_bytes factor"},
    {"sweep new_group ladder", "arrival_us"},
    {"sweep new_group ladder units", "warmup sync"},
    {"sweep ladder overlap pairs", "sizes"},
};

absl::Status CheckUses(const BenchConfig& config, const Job&) {
  for (const FlagUse& use : kFlagUses) {
    const std::vector<std::string> modes = absl::StrSplit(use.modes, ' ');
    if (std::find(modes.begin(), modes.end(), config.mode) != modes.end())
      continue;
    for (const absl::string_view flag : absl::StrSplit(use.flags, ' ')) {
      if (!config.given.contains(std::string(flag))) continue;
      return Refuse("--", flag, ": means nothing to --mode=", config.mode,
                    "; it is for --mode=", absl::StrJoin(modes, ", "));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModes(const BenchConfig& config, const Job& job) {
  const std::string& mode = config.mode;
  if (mode == "replay" && config.replay_file.empty()) {
    return Refuse(
        "--mode=replay: needs --replay=FILE, records that a trainer wrote "
        "with --traffic_steps");
  }
  if (mode == "units" && config.units.empty() == config.replay_file.empty()) {
    return Refuse("--mode=units: needs --units, such as 33M,12x28M,154M, or ",
                  "--replay=FILE, records that //trainers:fsdp wrote with "
                  "--traffic_steps; one of the two");
  }
  if (PretendsPeers(job.backend) &&
      (mode == "new_group" || mode == "ladder" || mode == "replay")) {
    return Refuse("--mode=", mode, ": not with --backend=", job.backend,
                  ", whose ranks are threads without a job");
  }
  if (mode == "pairs" && job.world_size < 2)
    return Refuse("--mode=pairs: needs at least 2 ranks");
  constexpr int64_t kMostGroups = 100;
  const TimingConfig groups = TimingOfGroups(config);
  if (mode == "new_group" && groups.iterations > kMostGroups - groups.warmup) {
    return Refuse("--iterations=", groups.iterations,
                  " --warmup=", groups.warmup,
                  ": --mode=new_group makes at most ", kMostGroups,
                  " groups, as each stays open until the end");
  }
  return absl::OkStatus();
}

// Only where this program starts the ranks itself can it start them again.
absl::Status CheckRelaunch(const BenchConfig& config, const Job& job) {
  if (config.relaunch == 1) return absl::OkStatus();
  if (job.launcher != "nproc") {
    return Refuse("--relaunch=", config.relaunch, ": only where this program ",
                  "starts the ranks itself, by --nproc; start the job several ",
                  "times instead");
  }
  std::error_code ignored;
  if (std::filesystem::exists(config.record_file, ignored) &&
      !std::filesystem::is_regular_file(config.record_file, ignored)) {
    return Refuse("--record=", config.record_file,
                  ": --relaunch reads its samples back, and this is not a ",
                  "file");
  }
  return absl::OkStatus();
}

// What a rank takes in addition to its buffers, where that matters.
int64_t BytesPerRank(const Job& job) {
  constexpr int64_t kThread = 80 << 10;
  return PretendsPeers(job.backend) ? kThread : 0;
}

absl::Status CheckRanks(const BenchConfig&, const Job& job) {
  if (!PretendsPeers(job.backend)) return absl::OkStatus();
  if (job.world_size > kMostPretendedRanks) {
    return Refuse("--fake_world_size=", job.world_size, ": above the limit of ",
                  kMostPretendedRanks, ": comm_bench runs every rank of ",
                  "--backend=", job.backend, " as a thread of this process");
  }
  const int64_t needed = job.world_size * BytesPerRank(job);
  if (job.memory_bytes <= 0 || needed <= job.memory_bytes)
    return absl::OkStatus();
  return Refuse("--fake_world_size=", job.world_size, ": the ranks' threads ",
                "take ", FormatBytes(needed), ", above this machine's memory ",
                "of ", FormatBytes(job.memory_bytes));
}

bool NeedsCommonClock(const BenchConfig& config) {
  const Across across = config.measure.timing.across;
  return across == Across::kTransfer || across == Across::kMakespan;
}

// The flag that asks for what a CPU has not, and why; empty: none.
std::pair<std::string, std::string> NeedsGpu(const BenchConfig& config) {
  if (config.layer == "nccl") return {"--layer=nccl", "NCCL runs on GPUs only"};
  if (config.timing == "events") {
    return {"--timing=events", "a CPU has no events"};
  }
  if (config.measure.graph) return {"--cuda_graph", "a CPU has no graphs"};
  if (config.measure.registered) {
    return {"--registered", "only NCCL registers buffers"};
  }
  return {};
}

absl::Status CheckDevice(const BenchConfig& config, const Job& job) {
  if (config.layer == "mpi" && job.backend != "mpi") {
    return Refuse("--layer=mpi: mpi.h is measured under --backend=mpi; ",
                  "give both");
  }
  if (config.measure.graph && config.measure.registered) {
    return Refuse(
        "--registered, --cuda_graph: not together: NCCL keeps buffers that a "
        "graph has used registered when the graph is gone, and they would be "
        "freed under it; run one after the other");
  }
  if (job.device.has_value()) {
    const auto [flag, why] = NeedsGpu(config);
    if (!job.device->is_cuda() && !flag.empty()) {
      const std::string missing = WhyNoGpu();
      return Refuse(flag, ": ", why, ", and this runs on ", job.device->str(),
                    missing.empty() ? "" : absl::StrCat(" (", missing, ")"),
                    "; leave it out, or run on GPUs");
    }
    if (job.device->is_cuda() && config.measure.cold) {
      return Refuse("--cache=cold: the caches of a GPU cannot be emptied from ",
                    "here; leave it out");
    }
  }
  if (config.timing == "events" && NeedsCommonClock(config)) {
    return Refuse(
        "--timing=events: events say how long a rank's call took, not when it "
        "ended on the ranks' common clock, as --across=transfer and makespan "
        "need; use --timing=host or --across=slowest");
  }
  return absl::OkStatus();
}

// What a hierarchical all-reduce needs to have levels, as far as it is known
// before the ranks meet. Other collectives are refused by name.
absl::Status CheckLevels(const BenchConfig& config, const Job& job) {
  if (config.layer != "hierarchical" ||
      std::none_of(config.collectives.begin(), config.collectives.end(),
                   [](const Collective* each) {
                     return each->name == absl::string_view("all_reduce");
                   })) {
    return absl::OkStatus();
  }
  if (PretendsPeers(job.backend)) {
    return Refuse("--layer=hierarchical: not available with --backend=",
                  job.backend, ", whose ranks have no hosts");
  }
  if (job.ranks_of_host == job.world_size) {
    return Refuse("--layer=hierarchical: all ranks are on one host; start ",
                  "them on several, or use --layer=c10d");
  }
  if (job.device.has_value() && job.device->is_cuda()) {
    return Refuse("--layer=hierarchical: on a GPU, NCCL already builds its ",
                  "rings and trees by host; use --layer=c10d");
  }
  return absl::OkStatus();
}

bool HasBuffers(const BenchConfig& config) {
  if (config.mode == "ladder") return true;
  if (config.mode == "units") return !config.units.empty();
  if (config.mode == "pairs") return config.sizes_given();
  return (config.mode == "sweep" || config.mode == "overlap") &&
         std::any_of(config.collectives.begin(), config.collectives.end(),
                     [](const Collective* item) { return item->has_elements; });
}

// The most bytes of buffers that a step of --mode=units (RunUnits) holds at a
// time. ZeRO 3: a few gathers and reductions, of consecutive units. ZeRO 1 and
// 2: all gathers and a few reductions.
int64_t MostAtATime(const BenchConfig& config) {
  const std::vector<int64_t>& units = config.units;
  const auto in_a_row = [&](size_t count) {
    int64_t sum = 0, most = 0;
    for (size_t i = 0; i < units.size(); ++i) {
      sum += units[i] - (i < count ? 0 : units[i - count]);
      most = std::max(most, sum);
    }
    return most;
  };
  const size_t in_flight = static_cast<size_t>(config.prefetch) + 1;
  return config.zero == 3 ? in_a_row(2 * in_flight)
                          : in_a_row(units.size()) + in_a_row(in_flight);
}

absl::Status CheckMemory(const BenchConfig& config, const Job& job) {
  const bool on_host = job.device.has_value() && job.device->is_cpu();
  if (!on_host || !HasBuffers(config) || job.memory_bytes <= 0)
    return absl::OkStatus();
  constexpr int64_t kMebi = 1 << 20;
  const int in_flight = config.measure.in_flight;
  const bool units = config.mode == "units";
  const std::vector<int64_t>& sizes = units ? config.units : config.sizes;
  const int64_t limit =
      (job.memory_bytes / job.ranks_of_host - BytesPerRank(job)) / in_flight;
  int64_t needed = *std::max_element(sizes.begin(), sizes.end());
  // Units that each fit add up without overflow.
  if (units && needed <= limit) needed = MostAtATime(config);
  if (needed <= limit) return absl::OkStatus();
  return Refuse(
      !config.replay_file.empty() ? "--replay: "
      : units                     ? "--units: "
      : config.sizes_given()      ? "--sizes: "
                                  : "--max_bytes: ",
      FormatBytes(needed), units ? " at a time" : "", " is above the limit of ",
      FormatBytes(limit < kMebi ? limit : limit / kMebi * kMebi),
      ": the buffers of ", Counted(job.ranks_of_host, "rank"),
      in_flight > 1 ? absl::StrCat(" with --in_flight=", in_flight) : "",
      " must fit into this machine's memory");
}

absl::Status CheckArrivals(const BenchConfig& config, const Job& job) {
  const size_t arrivals = config.measure.timing.arrival_seconds.size();
  if (arrivals > static_cast<size_t>(job.world_size)) {
    return Refuse("--arrival_us: ", Counted(arrivals, "number"), " for ",
                  Counted(job.world_size, "rank"));
  }
  return absl::OkStatus();
}

absl::Status CheckTraffic(const BenchConfig& config, const Job&) {
  if (config.traffic_file.empty() && config.traffic_skew == 0)
    return absl::OkStatus();
  if (!config.traffic_file.empty() && config.traffic_skew != 0)
    return Refuse("--traffic and --traffic_skew: give one of them");
  if (std::any_of(config.collectives.begin(), config.collectives.end(),
                  [](const Collective* each) { return each->takes_traffic; })) {
    return absl::OkStatus();
  }
  return Refuse(
      "--traffic, --traffic_skew: only for --collectives=all_to_all_v");
}

// The elements that MPI counts in an `int`: those of a rank's part; of an
// all-to-all, whose parts have offsets and which cannot run in place, all.
int64_t CountedByMpi(const Collective& collective, const Call& call) {
  return collective.in_place
             ? call.count / collective.granularity(call.world_size)
             : call.count;
}

// Returns what the backend lacks for a call that other backends support, or "".
// `largest`: the largest of the sweep's calls.
std::string WhyBackendLacks(const SweepCase& item, const Call& largest,
                            const Job& job) {
  if (job.backend != "mpi") return "";
  const std::string call =
      absl::StrCat(item.collective->name, " of ", DtypeName(item.dtype));
  if (item.collective->reduces && item.op == ReduceOp::AVG) {
    return absl::StrCat(call, " with op avg: --backend=mpi reduces by sum, ",
                        "prod, min and max only; measure sum");
  }
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const int64_t count = CountedByMpi(*item.collective, largest);
  if (count <= kMost) return "";
  return absl::StrCat(call, ": --backend=mpi carries at most ", kMost,
                      " elements in a call, not ", count,
                      "; measure smaller sizes");
}

absl::Status CheckCase(const SweepCase& item, const BenchConfig& config,
                       const Job& job, const Plan& plan) {
  const Collective& collective = *item.collective;
  const std::string name = collective.name;
  const Call call = CallOf(item, config, plan, config.sizes[0]);
  const int64_t largest =
      *std::max_element(config.sizes.begin(), config.sizes.end());
  const std::string lacking =
      WhyBackendLacks(item, CallOf(item, config, plan, largest), job);
  if (!lacking.empty()) return Refuse(lacking);
  if (config.mode == "overlap" &&
      (collective.trips > 1 || collective.takes_traffic)) {
    return Refuse("--mode=overlap --collectives=", name,
                  ": not measured; choose among the other collectives");
  }
  if (config.measure.in_flight > 1 && collective.trips > 1) {
    return Refuse(name, " with --in_flight=", config.measure.in_flight,
                  ": a message waits for the one before it; leave out ",
                  "--in_flight");
  }
  if (config.measure.graph && !collective.has_elements) {
    return Refuse(name, " with --cuda_graph: c10d makes the host wait in it, ",
                  "which cannot be recorded; leave out --cuda_graph");
  }
  if (config.layer == "hierarchical") {
    if (name != "all_reduce" || !plan.groups.empty()) {
      return Refuse(name,
                    " with --layer=hierarchical: only all_reduce among all ",
                    "ranks is supported; use --layer=c10d");
    }
    if (item.op != ReduceOp::SUM || !c10::isFloatingType(item.dtype)) {
      return Refuse("all_reduce of ", DtypeName(item.dtype), " with op ",
                    OpName(item.op), ": --layer=hierarchical sums ",
                    "floating-point numbers only; use --layer=c10d");
    }
    return CheckCall(collective, call);
  }
  if (config.layer != "c10d" && collective.nccl_calls == nullptr) {
    return Refuse(name, " with --layer=", config.layer,
                  ": nccl.h has no such call; measure it with --layer=c10d");
  }
  return CheckCall(collective, call);
}

// NCCL matches messages by their order, and blocks where two ranks both send
// first and nothing launches the calls together.
absl::Status CheckBackend(const RecordedTraffic& recorded, const Job& job) {
  if (job.backend != "nccl" || recorded.backend == "nccl")
    return absl::OkStatus();
  return Refuse(recorded.file, ": recorded over ", recorded.backend,
                ", whose order of messages may block NCCL; record it over ",
                "nccl, or replay it with --backend=", recorded.backend);
}

absl::Status AddRecorded(const BenchConfig& config, const Job& job,
                         Plan& plan) {
  ASSIGN_OR_RETURN(plan.recorded,
                   ReadTraffic(config.replay_file, job.world_size));
  ASSIGN_OR_RETURN(const BenchConfig on_mesh,
                   OnRecordedMesh(config, *plan.recorded));
  ASSIGN_OR_RETURN(const auto lines, LinesOf(on_mesh, job.world_size));
  RETURN_IF_ERROR(CheckBackend(*plan.recorded, job));
  return lines.empty() ? absl::OkStatus() : KeepLines(lines, *plan.recorded);
}

// Whether each reduce-scatter is that of a whole unit, once a step, and in the
// type that the benchmark uses.
absl::Status CheckRecordsUnits(const RecordedTraffic& recorded) {
  const auto refuse = [&](const auto&... why) {
    return Refuse(recorded.file, ": ", why..., ", or give --units");
  };
  if (recorded.trainer != "fsdp") {
    return refuse("recorded by ", recorded.trainer,
                  "; record a run of //trainers:fsdp");
  }
  const auto every = recorded.flags.find("reduce_every_microbatch");
  if (every != recorded.flags.end() && every->second == "true") {
    return refuse("recorded with --reduce_every_microbatch, which reduces a ",
                  "unit several times a step; record a run without it");
  }
  for (const RecordedTransfer& event : recorded.steps[0][0].events) {
    if (event.op != "all_gather" && event.op != "reduce_scatter") continue;
    if (event.dtype != "float32") {
      return refuse("holds ", event.op, " of ", event.dtype, ", and units are ",
                    "measured in float32; record a run with ",
                    "--param_dtype=fp32");
    }
    const auto ranks = static_cast<int>(
        GroupOf(event, static_cast<size_t>(recorded.world_size)).size());
    if (ranks != recorded.world_size) {
      return refuse("holds ", event.op, " among ", ranks, " of ",
                    Counted(recorded.world_size, "rank"), ", and units are ",
                    "measured among all; record a run without --shard_ranks");
    }
  }
  return absl::OkStatus();
}

// Backward reduces each unit once, the last of forward first.
absl::StatusOr<std::vector<int64_t>> RecordedUnits(const std::string& file,
                                                   int world_size) {
  ASSIGN_OR_RETURN(const RecordedTraffic recorded,
                   ReadTraffic(file, world_size));
  RETURN_IF_ERROR(CheckRecordsUnits(recorded));
  std::vector<int64_t> units;
  for (const RecordedTransfer& event : recorded.steps[0][0].events) {
    if (event.op == "reduce_scatter") units.push_back(event.bytes);
  }
  if (units.empty()) {
    return Refuse(file, ": holds no reduce_scatter; record a run of ",
                  "//trainers:fsdp on several ranks, or give --units");
  }
  std::reverse(units.begin(), units.end());
  return units;
}

absl::Status AddUnits(const BenchConfig& config, const Job& job, Plan& plan) {
  plan.units = config.units;
  if (plan.units.empty()) {
    BenchConfig recorded = config;
    ASSIGN_OR_RETURN(recorded.units,
                     RecordedUnits(config.replay_file, job.world_size));
    RETURN_IF_ERROR(CheckMemory(recorded, job));
    plan.units = recorded.units;
  }
  const size_t numbers = config.compute_seconds.size();
  if (numbers < 2 || numbers == plan.units.size()) return absl::OkStatus();
  return Refuse("--compute_us: ", Counted(numbers, "number"), " for ",
                Counted(plan.units.size(), "unit"), "; give one, or one each");
}

std::vector<Turn> TurnsOf(const BenchConfig& config, const Plan& plan) {
  if (config.axis.empty() || plan.groups.empty() || config.lines == "all")
    return {Turn::kAllGroups};
  if (config.lines == "one") return {Turn::kFirstGroup};
  return {Turn::kFirstGroup, Turn::kAllGroups};
}

std::vector<bool> InPlaceOrNot(const BenchConfig& config,
                               const Collective& collective) {
  if (!collective.has_elements) return {false};
  if (config.place == "auto") return {collective.prefers_in_place};
  if (config.place != "both") return {config.place == "in"};
  if (!collective.in_place) return {false};
  return {false, true};
}

// All combinations, whether they can run or not.
std::vector<SweepCase> Combinations(const BenchConfig& config) {
  std::vector<SweepCase> cases;
  for (const Collective* collective : config.collectives) {
    const auto dtypes = collective->has_elements
                            ? config.dtypes
                            : std::vector<c10::ScalarType>{config.dtypes[0]};
    const auto ops =
        collective->reduces ? config.ops : std::vector<ReduceOp>{config.ops[0]};
    for (const c10::ScalarType dtype : dtypes) {
      for (const ReduceOp op : ops) {
        for (const bool in_place : InPlaceOrNot(config, *collective))
          cases.push_back({collective, dtype, op, in_place});
      }
    }
  }
  return cases;
}

absl::Status AddCases(const BenchConfig& config, const Job& job, Plan& plan) {
  for (const SweepCase& item : Combinations(config)) {
    const absl::Status possible = CheckCase(item, config, job, plan);
    if (possible.ok()) {
      plan.cases.push_back(item);
    } else if (config.skip_unsupported) {
      plan.left_out.emplace_back(possible.message());
    } else {
      return possible;
    }
  }
  if (!plan.cases.empty()) return absl::OkStatus();
  return Refuse("nothing is left to measure: ",
                absl::StrJoin(plan.left_out, "; "));
}

std::string RoundedNote(const BenchConfig& config, int64_t bytes,
                        const Call& call) {
  const int64_t rounded = call.bytes();
  if (call.count == 0 || rounded == bytes ||
      (rounded < bytes && !config.sizes_given())) {
    return "";
  }
  return absl::StrCat("# ", Counted(bytes, "byte"), ": measured as ", rounded,
                      ", rounded to whole elements per rank\n");
}

}  // namespace

bool PretendsPeers(const std::string& backend) {
  const BackendKind* const kind = FindBackend(backend);
  return kind != nullptr && kind->pretends_peers;
}

absl::StatusOr<Plan> MakePlan(const BenchConfig& config, const Job& job) {
  for (const auto check :
       {CheckUses, CheckModes, CheckRanks, CheckRelaunch, CheckTraffic,
        CheckDevice, CheckLevels, CheckMemory, CheckArrivals}) {
    RETURN_IF_ERROR(check(config, job));
  }
  Plan plan;
  if (config.mode == "sweep") {
    ASSIGN_OR_RETURN(plan.groups, GroupsOf(config, job.world_size));
    plan.turns = TurnsOf(config, plan);
  }
  const int size = plan.groups.empty()
                       ? job.world_size
                       : static_cast<int>(plan.groups[0].size());
  plan.traffic = TrafficMatrix::Skewed(config.traffic_skew, size);
  if (!config.traffic_file.empty()) {
    ASSIGN_OR_RETURN(plan.traffic,
                     TrafficMatrix::Read(config.traffic_file, size));
  }
  if (config.mode == "sweep" || config.mode == "overlap")
    RETURN_IF_ERROR(AddCases(config, job, plan));
  if (config.mode == "replay") RETURN_IF_ERROR(AddRecorded(config, job, plan));
  if (config.mode == "units") RETURN_IF_ERROR(AddUnits(config, job, plan));
  return plan;
}

MeasureConfig MeasureOn(c10::Device device, const BenchConfig& config) {
  MeasureConfig measure = config.measure;
  measure.choices = config.nccl_choices && device.is_cuda();
  measure.events = config.timing == "events";
  if (config.timing == "auto") {
    measure.events =
        device.is_cuda() && config.mode == "sweep" && !NeedsCommonClock(config);
  }
  return measure;
}

std::vector<int64_t> GeometricSizes(int64_t min, int64_t max, double factor) {
  std::vector<int64_t> sizes;
  for (double size = min; size < max; size *= factor) {
    const int64_t rounded = static_cast<int64_t>(size);
    if (sizes.empty() || rounded > sizes.back()) sizes.push_back(rounded);
  }
  sizes.push_back(max);
  return sizes;
}

Call CallOf(const SweepCase& item, const BenchConfig& config, const Plan& plan,
            int64_t bytes) {
  const int world_size = plan.traffic.world_size();
  Call call;
  call.count = CountFor(*item.collective, bytes, item.dtype, world_size);
  call.dtype = item.dtype;
  call.op = item.op;
  call.root = item.collective->rooted ? config.root : 0;
  call.in_place = item.in_place;
  call.world_size = world_size;
  call.traffic = &plan.traffic;
  return call;
}

std::vector<SizedCall> CallsOf(const SweepCase& item, const BenchConfig& config,
                               const Plan& plan) {
  if (!item.collective->has_elements)
    return {{.call = CallOf(item, config, plan, 0), .note = ""}};
  std::vector<SizedCall> calls;
  int64_t last_count = -1;
  for (const int64_t bytes : config.sizes) {
    const Call call = CallOf(item, config, plan, bytes);
    // Small sizes may all be the smallest that can be divided.
    const bool repeats = std::exchange(last_count, call.count) == call.count;
    const std::string note =
        repeats ? absl::StrCat("# ", bytes, " bytes: as the row above",
                               ", rounded to whole elements per rank\n")
                : RoundedNote(config, bytes, call);
    calls.push_back({call, note, repeats});
  }
  return calls;
}

TimingConfig TimingOfGroups(const BenchConfig& config) {
  constexpr int64_t kUsual = 10;
  TimingConfig timing = config.measure.timing;
  if (timing.warmup < 0) timing.warmup = 1;
  if (timing.iterations == 0) timing.iterations = kUsual;
  return timing;
}

}  // namespace rankwise::comm_bench

#include "comm_bench/sweep/plan.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "comm_bench/sweep/lines.h"
#include "comm_bench/sweep/refuse.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/device/device_facts.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// --relaunch requires that this program launches the ranks.
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

// Returns a rank's relevant memory in addition to its buffers.
int64_t BytesPerRank(const Job& job) {
  constexpr int64_t kThread = 80 << 10;
  return SimulatesPeers(job.backend) ? kThread : 0;
}

// Rejects backends whose ranks are threads of this process.
absl::Status CheckProcesses(const Job& job) {
  if (!SimulatesPeers(job.backend)) return absl::OkStatus();
  return Refuse("--backend=", job.backend, ": cannot be measured here: its ",
                "ranks are threads without a job; use another backend");
}

bool NeedsCommonClock(const BenchConfig& config) {
  const Across across = config.measure.timing.across;
  return across == Across::kTransfer || across == Across::kMakespan;
}

// Returns the flag that needs a GPU and the reason; both empty if none does.
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
        "--timing=events: events measure how long a rank's call took, not when "
        "it ended on the ranks' common clock, as --across=transfer and "
        "makespan need; use --timing=host or --across=slowest");
  }
  return absl::OkStatus();
}

// Checks the requirements of a hierarchical all-reduce, as far as they are
// known before the ranks connect. Other collectives are rejected by name.
absl::Status CheckLevels(const BenchConfig& config, const Job& job) {
  if (config.layer != "hierarchical" ||
      std::none_of(config.collectives.begin(), config.collectives.end(),
                   [](const Collective* each) {
                     return each->name == absl::string_view("all_reduce");
                   })) {
    return absl::OkStatus();
  }
  if (SimulatesPeers(job.backend)) {
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

absl::Status CheckSizes(const BenchConfig& config, const Job& job) {
  return CheckMemory(
      config, job, config.sizes_given ? "--sizes" : "--max_bytes",
      *std::max_element(config.sizes.begin(), config.sizes.end()));
}

// Calls CheckSizes unless no collective has buffers.
absl::Status CheckSizesOfCollectives(const BenchConfig& config,
                                     const Job& job) {
  const bool have_buffers =
      std::any_of(config.collectives.begin(), config.collectives.end(),
                  [](const Collective* each) { return each->has_elements; });
  return have_buffers ? CheckSizes(config, job) : absl::OkStatus();
}

absl::Status CheckArrivals(const BenchConfig& config, const Job& job) {
  const size_t arrivals = config.measure.timing.arrival_seconds.size();
  if (arrivals > static_cast<size_t>(job.world_size)) {
    return Refuse("--arrival_us: ", Counted(arrivals, "number"), " for ",
                  Counted(job.world_size, "rank"));
  }
  return absl::OkStatus();
}

absl::Status CheckTraffic(const BenchConfig& config) {
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

// NCCL matches messages by their order, and deadlocks if two ranks both send
// first without grouping the calls.
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

std::vector<Turn> TurnsOf(const BenchConfig& config, const Plan& plan) {
  if (config.axis.empty() || plan.groups.empty() || config.lines == "all")
    return {Turn::kAllGroups};
  if (config.lines == "one") return {Turn::kFirstGroup};
  return {Turn::kFirstGroup, Turn::kAllGroups};
}

// CheckCase, and rejects collectives that overlap does not support.
absl::Status CheckCaseOfOverlap(const SweepCase& item,
                                const BenchConfig& config, const Job& job,
                                const Plan& plan) {
  const Collective& collective = *item.collective;
  if (collective.calls_per_iteration > 1 || collective.takes_traffic) {
    return Refuse("--collectives=", collective.name, ": not measured next to ",
                  "computing; choose among the other collectives");
  }
  return CheckCase(item, config, job, plan);
}

}  // namespace

bool SimulatesPeers(const std::string& backend) {
  const BackendKind* const kind = FindBackend(backend);
  return kind != nullptr && kind->simulates_peers;
}

absl::Status CheckRanks(const Job& job) {
  if (!SimulatesPeers(job.backend)) return absl::OkStatus();
  if (job.world_size > kMostSimulatedRanks) {
    return Refuse("--fake_world_size=", job.world_size, ": above the limit of ",
                  kMostSimulatedRanks, ": comm_bench runs every rank of ",
                  "--backend=", job.backend, " as a thread of this process");
  }
  const int64_t needed = job.world_size * BytesPerRank(job);
  if (job.memory_bytes <= 0 || needed <= job.memory_bytes)
    return absl::OkStatus();
  return Refuse("--fake_world_size=", job.world_size, ": the ranks' threads ",
                "take ", FormatBytes(needed), ", above this machine's memory ",
                "of ", FormatBytes(job.memory_bytes));
}

absl::Status CheckMemory(const BenchConfig& config, const Job& job,
                         absl::string_view flag, int64_t bytes,
                         absl::string_view at_a_time) {
  const bool on_host = job.device.has_value() && job.device->is_cpu();
  if (!on_host || job.memory_bytes <= 0) return absl::OkStatus();
  constexpr int64_t kMebi = 1 << 20;
  const int in_flight = config.measure.in_flight;
  const int64_t limit =
      (job.memory_bytes / job.ranks_of_host - BytesPerRank(job)) / in_flight;
  if (bytes <= limit) return absl::OkStatus();
  return Refuse(
      flag, ": ", FormatBytes(bytes), at_a_time, " is above the limit of ",
      FormatBytes(limit < kMebi ? limit : limit / kMebi * kMebi),
      ": the buffers of ", Counted(job.ranks_of_host, "rank"),
      in_flight > 1 ? absl::StrCat(" with --in_flight=", in_flight) : "",
      " must fit into this machine's memory");
}

absl::StatusOr<Plan> MakeSweepPlan(const BenchConfig& config, const Job& job) {
  RETURN_IF_ERROR(CheckRanks(job));
  RETURN_IF_ERROR(CheckRelaunch(config, job));
  RETURN_IF_ERROR(CheckTraffic(config));
  RETURN_IF_ERROR(CheckDevice(config, job));
  RETURN_IF_ERROR(CheckLevels(config, job));
  RETURN_IF_ERROR(CheckSizesOfCollectives(config, job));
  RETURN_IF_ERROR(CheckArrivals(config, job));
  Plan plan;
  ASSIGN_OR_RETURN(plan.groups, GroupsOf(config, job.world_size));
  plan.turns = TurnsOf(config, plan);
  const int size = plan.groups.empty()
                       ? job.world_size
                       : static_cast<int>(plan.groups[0].size());
  plan.traffic = TrafficMatrix::Skewed(config.traffic_skew, size);
  if (!config.traffic_file.empty()) {
    ASSIGN_OR_RETURN(plan.traffic,
                     TrafficMatrix::Read(config.traffic_file, size));
  }
  RETURN_IF_ERROR(AddCases(config, job, CheckCase, plan));
  return plan;
}

absl::StatusOr<Plan> MakePairsPlan(const BenchConfig& config, const Job& job) {
  if (job.world_size < 2) return Refuse("pairs need at least 2 ranks: --nproc");
  RETURN_IF_ERROR(CheckRanks(job));
  if (config.sizes_given) RETURN_IF_ERROR(CheckSizes(config, job));
  return Plan();
}

absl::StatusOr<Plan> MakeNewGroupPlan(const BenchConfig& config,
                                      const Job& job) {
  RETURN_IF_ERROR(CheckProcesses(job));
  constexpr int64_t kMostGroups = 100;
  const TimingConfig groups = TimingOfGroups(config);
  if (groups.iterations > kMostGroups - groups.warmup) {
    return Refuse("--iterations=", groups.iterations,
                  " --warmup=", groups.warmup, ": at most ", kMostGroups,
                  " groups are made, as each stays open until the end");
  }
  RETURN_IF_ERROR(CheckArrivals(config, job));
  return Plan();
}

absl::StatusOr<Plan> MakeLadderPlan(const BenchConfig& config, const Job& job) {
  RETURN_IF_ERROR(CheckProcesses(job));
  RETURN_IF_ERROR(CheckDevice(config, job));
  RETURN_IF_ERROR(CheckSizes(config, job));
  RETURN_IF_ERROR(CheckArrivals(config, job));
  return Plan();
}

absl::StatusOr<Plan> MakeOverlapPlan(const BenchConfig& config,
                                     const Job& job) {
  RETURN_IF_ERROR(CheckRanks(job));
  RETURN_IF_ERROR(CheckSizesOfCollectives(config, job));
  Plan plan;
  plan.traffic = TrafficMatrix::Skewed(0, job.world_size);
  RETURN_IF_ERROR(AddCases(config, job, CheckCaseOfOverlap, plan));
  return plan;
}

absl::StatusOr<Plan> MakeReplayPlan(const BenchConfig& config, const Job& job) {
  if (config.replay_file.empty()) {
    return Refuse(
        "needs --replay=FILE, records that a trainer wrote with "
        "--traffic_steps");
  }
  RETURN_IF_ERROR(CheckProcesses(job));
  Plan plan;
  RETURN_IF_ERROR(AddRecorded(config, job, plan));
  return plan;
}

MeasureConfig MeasureOn(c10::Device device, const BenchConfig& config) {
  MeasureConfig measure = config.measure;
  measure.choices = config.nccl_choices && device.is_cuda();
  measure.events = config.timing == "events" ||
                   (config.timing == "auto" && device.is_cuda() &&
                    !NeedsCommonClock(config));
  return measure;
}

MeasureConfig MeasureLadderOn(c10::Device device, BenchConfig config) {
  if (config.timing == "auto") config.timing = "host";
  return MeasureOn(device, config);
}

TimingConfig TimingOfGroups(const BenchConfig& config) {
  constexpr int64_t kUsual = 10;
  TimingConfig timing = config.measure.timing;
  if (timing.warmup < 0) timing.warmup = 1;
  if (timing.iterations == 0) timing.iterations = kUsual;
  return timing;
}

}  // namespace rankwise::comm_bench

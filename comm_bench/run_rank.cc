#include "comm_bench/run_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/bench_flags.h"
#include "comm_bench/environment.h"
#include "comm_bench/modes/modes.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/nccl/peer_ceiling.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/plan.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/clock/steady_time.h"
#include "parallel/comm/backends/fake_backend.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "parallel/device/device_facts.h"
#include "parallel/launch/comm_flags.h"
#include "parallel/launch/rank_env.h"
#include "parallel/launch/run_record.h"
#include "records/command_line.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"

namespace rankwise::comm_bench {
namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> interrupt_signal{0};  // 0: none came
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

void NoteInterrupt(int signal) {
  constexpr unsigned kSecondsToEnd = 5;  // for ranks that are blocked
  ::alarm(kSecondsToEnd);                // ends the process
  interrupt_signal = signal;
  interrupted = true;
}

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = NoteInterrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM})
    sigaction(signal, &action, nullptr);
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts FactsOf(const RunRecord& run, const EnvironmentRecord& environment,
              const BenchConfig& config) {
  Facts facts = {
      {"host", absl::StrCat(run.host.hostname, ", ", run.host.cpu_model)},
      {"topology", environment.topology},
      {"cpus", FormatCpus(environment.cpus)},
      {"versions",
       absl::StrCat("torch ", run.versions.torch, ", ", run.versions.compiler,
                    run.versions.nccl.empty() ? "" : ", NCCL ",
                    run.versions.nccl)},
      {"ranks", absl::StrCat(run.world_size, " over ", run.backend, ", ",
                             Counted(run.threads_per_rank, "thread"),
                             run.world_size == 1 ? "" : " each")}};
  for (const auto& [name, value] : environment.variables)
    facts.push_back({name, value});
  if (config.relaunch > 1)
    facts.push_back({"launch", absl::StrCat(config.measure.launch + 1, " of ",
                                            config.relaunch)});
  return facts;
}

// A warning if the ranks of this host have more threads than it has cores for
// them.
void AddShortCores(const RunRecord& run, const RankEnv& env, Facts& facts) {
  const int64_t threads = env.local_world_size * run.threads_per_rank;
  if (threads <= run.host.cores) return;
  facts.push_back(
      {"warning",
       absl::StrCat(Counted(threads, "thread"), " on ",
                    Counted(run.host.cores, "usable core"),
                    " of this host: times include waiting for a core; lower "
                    "--threads or the number of ranks")});
}

// What distinguishes this run's rows in a CSV file from another's.
CsvContext ContextOf(const RunRecord& run, const BenchConfig& config) {
  CsvContext context = {{"run_id", run.run_id},
                        {"backend", run.backend},
                        {"world_size", absl::StrCat(run.world_size)},
                        {"launch", absl::StrCat(config.measure.launch)}};
  for (const char* flag : {"across", "sync", "in_flight", "cache"})
    context.push_back({flag, run.flags.at(flag)});
  return context;
}

// Opens the files of all ranks, or of none.
absl::StatusOr<std::unique_ptr<Output>> OpenOutput(
    const BenchConfig& config, RunRecord run, EnvironmentRecord environment,
    Control& control) {
  run.rank = environment.rank = control.rank();
  absl::StatusOr<std::unique_ptr<Output>> output =
      Output::Open({.record_file = config.record_file,
                    .csv_file = config.csv_file,
                    .csv_context = ContextOf(run, config),
                    .across = config.measure.timing.across},
                   run, environment);
  RETURN_IF_ERROR(AllOk(control, output.status(), "open its files"));
  return output;
}

// Shows where this runs, and measures. `run` and `environment` may be another
// rank's of the same process.
absl::Status Measure(const BenchConfig& config, const Plan& plan,
                     const RunRecord& run, const EnvironmentRecord& environment,
                     BenchRank& rank) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output,
                   OpenOutput(config, run, environment, *rank.control));
  Facts facts = FactsOf(run, environment, config);
  if (rank.comm != nullptr) AddShortCores(run, rank.comm->env(), facts);
  if (rank.comm != nullptr && !rank.comm->why_on_cpu().empty())
    facts.push_back({"device", std::string(rank.comm->why_on_cpu())});
  if (rank.comm != nullptr && !rank.comm->why_backend().empty())
    facts.push_back({"auto", std::string(rank.comm->why_backend())});
  if (config.mode == "sweep") {
    const PeerCeiling ceiling =
        MeasurePeerCeiling(*rank.control, rank.device, rank.on_one_host);
    rank.peer_bytes_per_second = ceiling.bytes_per_second;
    if (!ceiling.text.empty()) facts.push_back({"peer copy", ceiling.text});
    if (rank.device.is_cuda() && config.nccl_choices &&
        rank.nccl_log == nullptr) {
      facts.push_back({"NCCL's log",
                       "not read for algorithms: NCCL_DEBUG or "
                       "its file are set, or none can be made"});
    }
  }
  output->Print(FormatFacts(facts));
  rank.output = output.get();
  return RunMode(config, plan, rank);
}

RunningRank Running(const RankEnv& env, c10::Device device) {
  RunningRank running;
  running.binary = "comm_bench";
  running.flags = FlagsOf("comm_bench/");
  running.env = env;
  running.devices = {device};
  running.threads = ThreadsPerRank(absl::GetFlag(FLAGS_threads), env);
  return running;
}

Job JobOf(const RankEnv& env, const RunRecord& run, c10::Device device) {
  return {.world_size = env.world_size,
          .ranks_of_host = env.local_world_size,
          .backend = run.backend,
          .launcher = env.launcher,
          .device = device,
          .memory_bytes = run.host.memory_bytes};
}

// The group of the plan that `rank` is in; empty: the plan has none.
std::vector<int> GroupWith(int rank, const Plan& plan) {
  for (const std::vector<int>& group : plan.groups) {
    if (std::count(group.begin(), group.end(), rank) > 0) return group;
  }
  return {};
}

absl::Status RunConnected(const BenchConfig& config, Communicator& comm,
                          NcclLogSwitch* nccl_log) {
  const std::unique_ptr<Control> control =
      MakeGroupControl(comm.process_group());
  RETURN_IF_ERROR(CheckSameFlags(*control, SharedFlags()));
  RunningRank running = Running(comm.env(), comm.device());
  running.comm = &comm;
  ASSIGN_OR_RETURN(const RunRecord run, DescribeRun(running));
  ASSIGN_OR_RETURN(const Plan plan,
                   MakePlan(config, JobOf(comm.env(), run, comm.device())));
  BenchRank rank;
  rank.comm = &comm;
  rank.ranks = GroupWith(comm.rank(), plan);
  rank.group = comm.process_group();
  if (!rank.ranks.empty()) {
    ASSIGN_OR_RETURN(
        const Group group,
        comm.NewGroup(config.axis.empty() ? "group" : config.axis, rank.ranks));
    rank.group = group.process_group();
  }
  const std::unique_ptr<Control> group_control = MakeGroupControl(rank.group);
  rank.group_control = group_control.get();
  rank.control = control.get();
  rank.device = comm.device();
  rank.on_one_host = comm.env().local_world_size == comm.env().world_size;
  rank.nccl_log = nccl_log;
  rank.stop = &interrupted;
  EnvironmentRecord environment = CollectEnvironment(run.rank);
  if (nccl_log != nullptr) {  // set by this program
    for (const std::string& name : NcclLogSwitch::Variables())
      environment.variables.erase(name);
  }
  return Measure(config, plan, run, environment, rank);
}

absl::Status RunRank(const BenchConfig& config, const CommConfig& comm_config,
                     const RankEnv& env) {
  at::set_num_threads(ThreadsPerRank(absl::GetFlag(FLAGS_threads), env));
  // Before any thread is started. Null: the log is the user's, or not needed.
  std::unique_ptr<NcclLogSwitch> nccl_log;
  if (config.mode == "sweep" && config.nccl_choices && VisibleGpus() > 0) {
    auto taken = NcclLogSwitch::Take(RereadNcclVariables);
    if (taken.ok()) nccl_log = *std::move(taken);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                   Communicator::Create(env, comm_config));
  CatchInterrupts();
  try {
    return RunConnected(config, *comm, nccl_log.get());
  } catch (const std::exception& error) {
    return comm->ExplainFailure(absl::StrCat("--mode=", config.mode), error);
  }
}

// Ranks that pretend to communicate; they exchange their samples at no cost.
struct PretendedGroup {
  PretendedGroup(const FakeBackendConfig& costs, std::vector<int> of)
      : ranks(std::move(of)),
        measured(static_cast<int>(ranks.size()), FakeCostsOf(costs, ranks)),
        free(static_cast<int>(ranks.size()), {}) {}

  const std::vector<int> ranks;  // of the job
  const FakeWorld measured, free;
};

// Runs body(rank) for every rank on a thread of its own, once all threads are
// there. Returns the first rank's error.
absl::Status OnThreads(int ranks,
                       const std::function<absl::Status(int)>& body) {
  enum Signal { kWait, kStart, kGiveUp };
  std::atomic<Signal> signal = kWait;
  std::vector<absl::Status> statuses(ranks);
  std::vector<std::thread> threads;
  try {
    while (threads.size() < statuses.size()) {
      threads.emplace_back([&, rank = static_cast<int>(threads.size())] {
        signal.wait(kWait);
        if (signal == kStart) statuses[rank] = body(rank);
      });
    }
    signal = kStart;
  } catch (const std::system_error& error) {
    statuses[0] = absl::ResourceExhaustedError(absl::StrCat(
        "--fake_world_size=", ranks, ": the system starts ", threads.size(),
        " threads at most: ", error.code().message(),
        "; pretend fewer ranks, or raise the limit on threads"));
    signal = kGiveUp;
  }
  signal.notify_all();
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// What all ranks that are threads of this process share.
struct Pretended {
  const BenchConfig& config;
  const Plan& plan;
  const RunRecord& run;
  const EnvironmentRecord& environment;
  const FakeWorld& free;  // of all ranks
};

// One thread of RunPretendedRanks.
absl::Status RunPretendedRank(const Pretended& shared,
                              const PretendedGroup& own, int number) {
  std::optional<VirtualTime> time;
  if (shared.config.fake_virtual_time) time.emplace();
  const auto place =
      static_cast<int>(std::find(own.ranks.begin(), own.ranks.end(), number) -
                       own.ranks.begin());
  const std::unique_ptr<Control> control =
      MakeGroupControl(MakeFakeProcessGroup(shared.free.backend(number)));
  const std::unique_ptr<Control> group_control =
      MakeGroupControl(MakeFakeProcessGroup(own.free.backend(place)));
  BenchRank rank;
  if (!shared.plan.groups.empty()) rank.ranks = own.ranks;
  rank.group = MakeFakeProcessGroup(own.measured.backend(place));
  rank.group_control = group_control.get();
  rank.control = control.get();
  rank.stop = &interrupted;
  try {
    return Measure(shared.config, shared.plan, shared.run, shared.environment,
                   rank);
  } catch (const std::exception& error) {
    return absl::InternalError(PlainMessage(error));
  }
}

absl::Status RunPretendedRanks(const BenchConfig& config,
                               const CommConfig& comm) {
  CatchInterrupts();
  RankEnv env = FakeRankEnvFromFlags();
  env.local_world_size = env.world_size;
  const RunningRank running = Running(env, c10::kCPU);
  ASSIGN_OR_RETURN(RunRecord run, DescribeRun(running));
  run.backend = comm.backend;
  ASSIGN_OR_RETURN(const Plan plan,
                   MakePlan(config, JobOf(env, run, c10::kCPU)));
  std::vector<int> everybody(env.world_size);
  std::iota(everybody.begin(), everybody.end(), 0);
  const PretendedGroup all(comm.fake, everybody);
  std::list<PretendedGroup> groups;
  std::vector<const PretendedGroup*> group_of(env.world_size, &all);
  for (const std::vector<int>& ranks : plan.groups) {
    groups.emplace_back(comm.fake, ranks);
    for (const int rank : ranks) group_of[rank] = &groups.back();
  }
  const EnvironmentRecord environment = CollectEnvironment(0);
  const Pretended shared = {config, plan, run, environment, all.free};
  return OnThreads(env.world_size, [&](int rank) {
    at::set_num_threads(running.threads);
    return RunPretendedRank(shared, *group_of[rank], rank);
  });
}

}  // namespace

int RunRanks(const BenchConfig& config, const CommConfig& comm) {
  PrepareRankProcess();
  if (PretendsPeers(comm.backend))
    return Report("comm_bench", RunPretendedRanks(config, comm));
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv({.master_required = comm.file_store.empty()});
  if (!env.ok()) return Report("comm_bench", env.status());
  absl::Status status;
  try {
    status = RunRank(config, comm, *env);
  } catch (const std::exception& error) {  // while connecting
    status = absl::InternalError(PlainMessage(error));
  }
  return Report(env->world_size == 1
                    ? "comm_bench"
                    : absl::StrCat("comm_bench: rank ", env->rank),
                status, env->rank);
}

int Report(const std::string& who, const absl::Status& status, int rank) {
  if (status.ok()) return 0;
  const bool cancelled = absl::IsCancelled(status);
  // What all ranks have agreed on, rank 0 says for them.
  if (rank == 0 || !(cancelled || absl::IsDataLoss(status)))
    std::fprintf(stderr, "%s: %s%s\n", who.c_str(), cancelled ? "" : "error: ",
                 std::string(status.message()).c_str());
  if (!cancelled) return ExitCode(status);
  // Another rank may have had the signal.
  return 128 + (interrupt_signal == 0 ? SIGINT : interrupt_signal.load());
}

}  // namespace rankwise::comm_bench

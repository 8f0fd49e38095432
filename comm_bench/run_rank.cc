#include "comm_bench/run_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/environment.h"
#include "comm_bench/nccl/nccl_log.h"
#include "comm_bench/nccl/peer_ceiling.h"
#include "comm_bench/output/output.h"
#include "comm_bench/sweep/plan.h"
#include "comm_bench/timing/agreement.h"
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

std::atomic<bool> interrupted{false};

namespace {

std::atomic<int> interrupt_signal{0};  // 0 without a signal
static_assert(std::atomic<bool>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

void NoteInterrupt(int signal) {
  constexpr unsigned kSecondsToEnd = 5;  // time limit for blocked ranks
  ::alarm(kSecondsToEnd);                // ends the process
  interrupt_signal = signal;
  interrupted = true;
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

// Adds a warning if the ranks of this host have more threads than it has cores
// for them.
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

// Returns the columns that distinguish this run's rows in a CSV file.
CsvContext ContextOf(const RunRecord& run, const BenchConfig& config) {
  if (config.csv_file.empty()) return {};
  CsvContext context = {{"run_id", run.run_id},
                        {"backend", run.backend},
                        {"world_size", absl::StrCat(run.world_size)},
                        {"launch", absl::StrCat(config.measure.launch)}};
  for (const char* flag : {"across", "sync"})
    context.push_back({flag, run.flags.at(flag)});
  context.push_back({"in_flight", absl::StrCat(config.measure.in_flight)});
  context.push_back({"cache", config.measure.cold ? "cold" : "hot"});
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

// Returns the flags that must be equal on all ranks.
std::map<std::string, std::string> SharedFlags() {
  std::map<std::string, std::string> flags = FlagsOf("comm_bench/");
  for (const char* own : {"record", "csv", "log_dir", "nproc"})
    flags.erase(own);
  return flags;
}

// Returns the plan's group with `rank`; empty if the plan has no groups.
std::vector<int> GroupWith(int rank, const Plan& plan) {
  for (const std::vector<int>& group : plan.groups) {
    if (std::count(group.begin(), group.end(), rank) > 0) return group;
  }
  return {};
}

absl::Status RunConnected(const Question& question, const BenchConfig& config,
                          Communicator& comm, NcclLogSwitch* nccl_log) {
  const std::unique_ptr<Control> control =
      MakeGroupControl(comm.process_group());
  RETURN_IF_ERROR(CheckSameFlags(*control, SharedFlags()));
  RunningRank running = DescribeRank(question, comm.env(), comm.device());
  running.comm = &comm;
  ASSIGN_OR_RETURN(const RunRecord run, DescribeRun(running));
  ASSIGN_OR_RETURN(
      const Plan plan,
      question.plan(config, JobOf(comm.env(), run, comm.device())));
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
  return Measure({question, config, plan, run, environment}, rank);
}

absl::Status RunRank(const Question& question, const BenchConfig& config,
                     const CommConfig& comm_config, const RankEnv& env) {
  at::set_num_threads(ThreadsPerRank(absl::GetFlag(FLAGS_threads), env));
  // Before any thread is started. nullptr if the user has set up the log, or it
  // is not needed.
  std::unique_ptr<NcclLogSwitch> nccl_log;
  if (question.compares_with_hardware && config.nccl_choices &&
      VisibleGpus() > 0) {
    auto taken = NcclLogSwitch::Take(RereadNcclVariables);
    if (taken.ok()) nccl_log = *std::move(taken);
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> comm,
                   Communicator::Create(env, comm_config));
  CatchInterrupts();
  try {
    return RunConnected(question, config, *comm, nccl_log.get());
  } catch (const std::exception& error) {
    return comm->ExplainFailure(question.name, error);
  }
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = NoteInterrupt;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM})
    sigaction(signal, &action, nullptr);
}

RunningRank DescribeRank(const Question& question, const RankEnv& env,
                         c10::Device device) {
  RunningRank running;
  running.binary = question.name;
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

absl::Status Measure(const Assignment& assignment, BenchRank& rank) {
  const auto& [question, config, plan, run, environment] = assignment;
  ASSIGN_OR_RETURN(const std::unique_ptr<Output> output,
                   OpenOutput(config, run, environment, *rank.control));
  Facts facts = FactsOf(run, environment, config);
  if (rank.comm != nullptr) AddShortCores(run, rank.comm->env(), facts);
  if (rank.comm != nullptr && !rank.comm->why_on_cpu().empty())
    facts.push_back({"device", std::string(rank.comm->why_on_cpu())});
  if (rank.comm != nullptr && !rank.comm->why_backend().empty())
    facts.push_back({"auto", std::string(rank.comm->why_backend())});
  if (question.compares_with_hardware) {
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
  return question.measure(config, plan, rank);
}

int RunRanks(const Question& question, const BenchConfig& config,
             const CommConfig& comm) {
  const std::string name = question.name;
  PrepareRankProcess();
  if (SimulatesPeers(comm.backend))
    return Report(name, RunSimulatedRanks(question, config, comm));
  const absl::StatusOr<RankEnv> env =
      ReadRankEnv({.master_required = comm.file_store.empty()});
  if (!env.ok()) return Report(name, env.status());
  absl::Status status;
  try {
    status = RunRank(question, config, comm, *env);
  } catch (const std::exception& error) {  // while connecting
    status = absl::InternalError(PlainMessage(error));
  }
  return Report(
      env->world_size == 1 ? name : absl::StrCat(name, ": rank ", env->rank),
      status, env->rank);
}

int Report(const std::string& who, const absl::Status& status, int rank) {
  if (status.ok()) return 0;
  const bool cancelled = absl::IsCancelled(status);
  // Rank 0 prints the errors that all ranks have agreed on.
  if (rank == 0 || !(cancelled || absl::IsDataLoss(status)))
    std::fprintf(stderr, "%s: %s%s\n", who.c_str(), cancelled ? "" : "error: ",
                 std::string(status.message()).c_str());
  if (!cancelled) return ExitCode(status);
  // Another rank may have received the signal.
  return 128 + (interrupt_signal == 0 ? SIGINT : interrupt_signal.load());
}

}  // namespace rankwise::comm_bench

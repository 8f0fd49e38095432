#include "parallel/launch/rank_env.h"

#include <cstdint>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "parallel/launch/interfaces.h"
#include "parallel/launch/network.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// The rendezvous address of ranks on one machine. A loopback interface that is
// down is reported at the rendezvous.
std::string Loopback() { return LoopbackAddress().value_or("127.0.0.1"); }

std::optional<std::string> LookUpProcess(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

bool IsSet(const EnvLookup& lookup, const std::string& name) {
  return lookup(name).has_value();
}

// The variables of one launcher, to read and to name in messages.
struct Names {
  const char *launcher, *rank, *world_size, *local_rank, *local_world_size;
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK",
                             "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi = {
    "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};

absl::Status Refuse(absl::string_view message) {
  return absl::InvalidArgumentError(
      absl::StrCat("rank environment: ", message));
}

constexpr int kMaxRanks = 1 << 20;

absl::Status Parse(const std::string& name, const std::string& text,
                   int* target) {
  if (absl::SimpleAtoi(text, target)) return absl::OkStatus();
  return Refuse(absl::StrCat(name, "='", text, "' is not a number"));
}

// Reads a rank or a number of ranks. `companion` must be set if `name` is.
absl::StatusOr<int> ReadInt(const EnvLookup& lookup, const std::string& name,
                            absl::string_view companion, int min) {
  const std::optional<std::string> text = lookup(name);
  if (!text.has_value()) {
    return Refuse(absl::StrCat(name, " is not set, but ", companion,
                               " is; set both or neither"));
  }
  int value = 0;
  RETURN_IF_ERROR(Parse(name, *text, &value));
  if (value >= min && value <= kMaxRanks) return value;
  return Refuse(absl::StrCat(name, "=", value, " is not between ", min, " and ",
                             kMaxRanks));
}

// LOCAL_RANK and LOCAL_WORLD_SIZE when neither is set: known only if all ranks
// run on this machine.
absl::Status AssumeLocal(const EnvLookup& lookup, const Names& names,
                         RankEnv* env) {
  const std::string master = lookup("MASTER_ADDR").value_or("");
  if (env->world_size > 1 && !IsLoopbackAddress(master)) {
    return Refuse(absl::StrCat(
        names.local_rank, " and ", names.local_world_size,
        " are not set, and with ", names.world_size, "=", env->world_size,
        " and MASTER_ADDR='", master,
        "' the ranks may be on several machines; set both, as torchrun does"));
  }
  env->local_rank = env->rank;
  env->local_world_size = env->world_size;
  return absl::OkStatus();
}

absl::Status ReadRankAndSize(const EnvLookup& lookup, const Names& names,
                             RankEnv* env) {
  env->launcher = names.launcher;
  ASSIGN_OR_RETURN(env->world_size,
                   ReadInt(lookup, names.world_size, names.rank, 1));
  ASSIGN_OR_RETURN(env->rank, ReadInt(lookup, names.rank, names.world_size, 0));
  return absl::OkStatus();
}

absl::Status CheckPlace(const Names& names, const RankEnv& env) {
  if (env.rank >= env.world_size) {
    return Refuse(absl::StrCat(names.rank, "=", env.rank, " must be less than ",
                               names.world_size, "=", env.world_size,
                               "; ranks count from 0"));
  }
  if (env.local_world_size > env.world_size) {
    return Refuse(absl::StrCat(names.local_world_size, "=",
                               env.local_world_size, " exceeds ",
                               names.world_size, "=", env.world_size));
  }
  if (env.local_rank >= env.local_world_size) {
    return Refuse(absl::StrCat(names.local_rank, "=", env.local_rank,
                               " must be less than ", names.local_world_size,
                               "=", env.local_world_size));
  }
  if (env.local_rank > env.rank) {
    return Refuse(absl::StrCat(names.local_rank, "=", env.local_rank,
                               " exceeds ", names.rank, "=", env.rank,
                               "; one of them is wrong"));
  }
  return absl::OkStatus();
}

absl::Status ReadPlace(const EnvLookup& lookup, const Names& names,
                       RankEnv* env) {
  RETURN_IF_ERROR(ReadRankAndSize(lookup, names, env));
  if (!IsSet(lookup, names.local_rank) &&
      !IsSet(lookup, names.local_world_size)) {
    RETURN_IF_ERROR(AssumeLocal(lookup, names, env));
  } else {
    ASSIGN_OR_RETURN(
        env->local_world_size,
        ReadInt(lookup, names.local_world_size, names.local_rank, 1));
    ASSIGN_OR_RETURN(env->local_rank, ReadInt(lookup, names.local_rank,
                                              names.local_world_size, 0));
  }
  return CheckPlace(names, *env);
}

// A port that all ranks of a job derive alike, in the unprivileged range below
// Linux's ephemeral ports. FNV-1a spreads neighbouring job ids.
int PortOfJob(absl::string_view job_id) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : job_id) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  }
  return 12000 + static_cast<int>(hash % 20000);
}

// Reads MASTER_ADDR and MASTER_PORT. The defaults are `address` and a port
// derived from `job_id`; both are "" if unknown.
absl::Status ReadMaster(const EnvLookup& lookup, const std::string& address,
                        const std::string& job_id,
                        const RankEnvOptions& options, RankEnv* env) {
  env->master_addr = lookup("MASTER_ADDR").value_or(address);
  if (const auto port = lookup("MASTER_PORT"); port.has_value()) {
    RETURN_IF_ERROR(Parse("MASTER_PORT", *port, &env->master_port));
    if (env->master_port < 1 || env->master_port > 65535) {
      return Refuse(absl::StrCat("MASTER_PORT=", *port,
                                 " is not a port between 1 and 65535"));
    }
  } else if (!job_id.empty()) {
    env->master_port = PortOfJob(job_id);
  }
  const bool complete = !env->master_addr.empty() && env->master_port != 0;
  if (complete) return absl::OkStatus();
  if (env->world_size == 1 && env->launcher != "nproc") {
    env->master_addr.clear();  // alone: a free port of the loopback interface
    env->master_port = 0;
    return absl::OkStatus();
  }
  if (!options.master_required) return absl::OkStatus();
  const bool no_address = env->master_addr.empty();
  return Refuse(absl::StrCat(
      no_address ? "MASTER_ADDR" : "MASTER_PORT", " is not set, so rank ",
      env->rank, " of ", env->world_size, " (started by ", env->launcher,
      ") cannot find rank 0; set it to rank 0's ",
      no_address ? "host name or address" : "free port", " on every rank",
      env->launcher == "mpirun"
          ? ", e.g. mpirun -x MASTER_ADDR=host -x MASTER_PORT=29500"
          : ""));
}

absl::Status ReadRestart(const EnvLookup& lookup, RankEnv* env) {
  for (const auto& [name, target] :
       {std::pair("TORCHELASTIC_RESTART_COUNT", &env->restart_count),
        std::pair("TORCHELASTIC_MAX_RESTARTS", &env->max_restarts)}) {
    RETURN_IF_ERROR(Parse(name, lookup(name).value_or("0"), target));
  }
  env->restart_cause = lookup("RANKWISE_RESTART_CAUSE").value_or("");
  for (const auto& [name, target] :
       {std::pair("RANKWISE_FAILED_AT", &env->failed_unix_seconds),
        std::pair("RANKWISE_STARTED_AT", &env->started_unix_seconds)}) {
    const std::optional<std::string> text = lookup(name);
    if (text.has_value() && !absl::SimpleAtod(*text, target)) {
      return Refuse(absl::StrCat(name, "='", *text, "' is not a number"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadTorchrun(const EnvLookup& lookup,
                          const RankEnvOptions& options, RankEnv* env) {
  RETURN_IF_ERROR(ReadPlace(lookup, kTorchrun, env));
  if (IsSet(lookup, "RANKWISE_LAUNCHER")) env->launcher = "nproc";
  const std::string agent = lookup("TORCHELASTIC_USE_AGENT_STORE").value_or("");
  env->store_is_external = agent == "True" || agent == "true" || agent == "1";
  RETURN_IF_ERROR(ReadRestart(lookup, env));
  return ReadMaster(lookup, /*address=*/"", /*job_id=*/"", options, env);
}

absl::Status ReadOpenMpi(const EnvLookup& lookup, const RankEnvOptions& options,
                         RankEnv* env) {
  RETURN_IF_ERROR(ReadPlace(lookup, kOpenMpi, env));
  const bool is_local = env->local_world_size == env->world_size;
  return ReadMaster(lookup, is_local ? Loopback() : "",
                    lookup("OMPI_MCA_ess_base_jobid").value_or(""), options,
                    env);
}

// Whether this process is one of several tasks of a job step. A batch script
// has SLURM_PROCID=0 although it is not a rank; it lacks SLURM_STEP_NUM_TASKS.
bool IsSlurmRank(const EnvLookup& lookup) {
  if (!IsSet(lookup, "SLURM_PROCID")) return false;
  int tasks = 0;
  const std::optional<std::string> step = lookup("SLURM_STEP_NUM_TASKS");
  // `srun --pty bash` and salloc's interactive step have one task.
  if (step.has_value()) return !absl::SimpleAtoi(*step, &tasks) || tasks > 1;
  if (*lookup("SLURM_PROCID") != "0") return true;
  return IsSet(lookup, "MASTER_ADDR") && IsSet(lookup, "SLURM_NTASKS");
}

// Entry `index` of "4(x2),3" = 4, 4, 3; nullopt if malformed or too short.
std::optional<int> EntryOfCountList(absl::string_view list, int index) {
  for (absl::string_view part : absl::StrSplit(list, ',')) {
    int repeat = 1;
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(part, absl::MaxSplits("(x", 1));
    if (halves.first != part) {
      absl::string_view times = halves.second;
      if (!absl::ConsumeSuffix(&times, ")") ||
          !absl::SimpleAtoi(times, &repeat)) {
        return std::nullopt;
      }
    }
    int count = 0;
    if (!absl::SimpleAtoi(halves.first, &count)) return std::nullopt;
    if (index < repeat) return count;
    index -= repeat;
  }
  return std::nullopt;
}

// Tasks of the step on this node: from SLURM_STEP_TASKS_PER_NODE or
// SLURM_TASKS_PER_NODE at SLURM_NODEID, else SLURM_NTASKS_PER_NODE, else
// `world_size` on a single node.
absl::StatusOr<int> SlurmLocalWorldSize(const EnvLookup& lookup,
                                        int world_size) {
  int node = 0;
  RETURN_IF_ERROR(
      Parse("SLURM_NODEID", lookup("SLURM_NODEID").value_or("0"), &node));
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                           "SLURM_NTASKS_PER_NODE"}) {
    const std::optional<std::string> list = lookup(name);
    if (!list.has_value()) continue;
    const bool same_on_all = absl::string_view(name) == "SLURM_NTASKS_PER_NODE";
    const std::optional<int> count =
        EntryOfCountList(*list, same_on_all ? 0 : node);
    if (count.has_value()) return *count;
    return Refuse(absl::StrCat(name, "='", *list,
                               "' does not say how many tasks node ", node,
                               " runs"));
  }
  if (lookup("SLURM_NNODES").value_or("1") == "1") return world_size;
  return Refuse(absl::StrCat(
      "SLURM_NNODES=", *lookup("SLURM_NNODES"),
      ", but neither SLURM_STEP_TASKS_PER_NODE nor SLURM_NTASKS_PER_NODE is "
      "set, so the number of local ranks is unknown; use srun "
      "--ntasks-per-node=N"));
}

// "gpu[07-09,12],login1" -> "gpu07"; "a-[1-2]-ib" -> "a-1-ib".
std::string FirstOfNodeList(absl::string_view list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    const size_t close = list.find(']', i);
    if (close == absl::string_view::npos) return "";
    const absl::string_view ranges = list.substr(i + 1, close - i - 1);
    absl::StrAppend(&host, ranges.substr(0, ranges.find_first_of(",-")));
    i = close;
  }
  return host;
}

// The host of rank 0 under the default (block) distribution: the first in the
// node list of the step, or else of the job. "" if there is none.
std::string SlurmFirstHost(const EnvLookup& lookup) {
  for (const char* name :
       {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    const std::optional<std::string> list = lookup(name);
    if (list.has_value()) return FirstOfNodeList(*list);
  }
  return "";
}

absl::Status ReadSlurm(const EnvLookup& lookup, const RankEnvOptions& options,
                       RankEnv* env) {
  const Names names = {"srun", "SLURM_PROCID",
                       IsSet(lookup, "SLURM_STEP_NUM_TASKS")
                           ? "SLURM_STEP_NUM_TASKS"
                           : "SLURM_NTASKS",
                       "SLURM_LOCALID", "the tasks per node"};
  RETURN_IF_ERROR(ReadRankAndSize(lookup, names, env));
  ASSIGN_OR_RETURN(env->local_rank,
                   ReadInt(lookup, names.local_rank, names.rank, 0));
  ASSIGN_OR_RETURN(env->local_world_size,
                   SlurmLocalWorldSize(lookup, env->world_size));
  RETURN_IF_ERROR(CheckPlace(names, *env));
  const bool is_local = env->local_world_size == env->world_size;
  std::string job = lookup("SLURM_JOB_ID").value_or("");
  if (!job.empty()) {
    absl::StrAppend(&job, ".", lookup("SLURM_STEP_ID").value_or("0"));
  }
  return ReadMaster(lookup, is_local ? Loopback() : SlurmFirstHost(lookup), job,
                    options, env);
}

// Returns the name of a torchrun variable that only ranks have, if one is set.
std::optional<std::string> TorchrunTrace(const EnvLookup& lookup) {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (IsSet(lookup, name)) return name;
  }
  return std::nullopt;
}

bool IsOpenMpi(const EnvLookup& lookup) {
  return IsSet(lookup, "OMPI_COMM_WORLD_RANK") ||
         IsSet(lookup, "OMPI_COMM_WORLD_SIZE");
}

}  // namespace

absl::StatusOr<RankEnv> ReadRankEnv(const EnvLookup& lookup,
                                    const RankEnvOptions& options) {
  RankEnv env;
  env.network_interface = lookup("GLOO_SOCKET_IFNAME").value_or("");
  env.visible_gpus = lookup("CUDA_VISIBLE_DEVICES").value_or("");
  const std::optional<std::string> trace = TorchrunTrace(lookup);
  if (IsSet(lookup, "RANK") || IsSet(lookup, "WORLD_SIZE")) {
    RETURN_IF_ERROR(ReadTorchrun(lookup, options, &env));
  } else if (IsOpenMpi(lookup)) {
    RETURN_IF_ERROR(ReadOpenMpi(lookup, options, &env));
  } else if (IsSlurmRank(lookup)) {
    RETURN_IF_ERROR(ReadSlurm(lookup, options, &env));
  } else if (trace.has_value()) {
    return Refuse(absl::StrCat(*trace, "=", *lookup(*trace),
                               " is set, but RANK and WORLD_SIZE are not; "
                               "set them too, or unset ",
                               *trace));
  }
  // torchrun inherits the variables of the step in which it runs.
  env.has_pmix = env.launcher != kTorchrun.launcher &&
                 lookup("PMIX_RANK") == absl::StrCat(env.rank);
  return env;
}

absl::StatusOr<RankEnv> ReadRankEnv(const RankEnvOptions& options) {
  return ReadRankEnv(LookUpProcess, options);
}

bool InsideLauncher(const EnvLookup& lookup) {
  return TorchrunTrace(lookup).has_value() || IsOpenMpi(lookup) ||
         IsSlurmRank(lookup);
}

bool InsideLauncher() { return InsideLauncher(LookUpProcess); }

}  // namespace rankwise

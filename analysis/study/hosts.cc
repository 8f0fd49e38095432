#include "analysis/study/hosts.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "analysis/study/bad_flag.h"
#include "records/text.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

constexpr int64_t kMostRanksPerHost = 4096;

std::string ValueOf(const Environment& environment, const char* name) {
  const char* const value = environment(name);
  return value == nullptr ? "" : value;
}

int64_t NumberOf(const Environment& environment, const char* name) {
  int64_t number = 0;
  return absl::SimpleAtoi(ValueOf(environment, name), &number) ? number : 0;
}

absl::StatusOr<std::string> OnPath(const std::string& program,
                                   const Environment& environment) {
  const std::string path = ValueOf(environment, "PATH");
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    const std::string file = absl::StrCat(folder, "/", program);
    if (!folder.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError(absl::StrCat(
      "--hosts: ", program, " is not on the PATH, and ",
      program == "srun"
          ? "a study in a Slurm allocation needs it to start its runs"
          : "it starts the runs: install OpenMPI, or start the study in a "
            "Slurm allocation"));
}

absl::StatusOr<std::vector<std::string>> ParseHosts(absl::string_view text) {
  std::vector<std::string> names;
  for (const absl::string_view name : absl::StrSplit(text, ',')) {
    const bool is_name = !name.empty() && name[0] != '-' &&
                         name.find_first_of(": \t") == name.npos;
    if (!is_name) {
      return BadFlag(
          "--hosts=", text, ": \"", name,
          "\" is not a valid host name; expected a comma-separated list "
          "such as node1,node2 (set the ranks on each with "
          "--ranks_per_host)");
    }
    if (std::count(names.begin(), names.end(), name) > 0)
      return BadFlag("--hosts=", text, ": ", name, " occurs twice");
    names.push_back(std::string(name));
  }
  return names;
}

}  // namespace

absl::StatusOr<StudyHosts> FindHosts(absl::string_view names,
                                     int64_t ranks_each,
                                     const Environment& environment) {
  StudyHosts hosts;
  if (!names.empty()) {
    ASSIGN_OR_RETURN(hosts.names, ParseHosts(names));
    hosts.count = static_cast<int64_t>(hosts.names.size());
  }
  const int64_t nodes = NumberOf(environment, "SLURM_JOB_NUM_NODES");
  hosts.slurm = nodes > 1;
  if (names.empty() && !hosts.slurm) {
    if (ranks_each == 0) return hosts;
    return BadFlag(
        "--ranks_per_host=", ranks_each,
        ": has no effect on one host; pass --hosts too, or start the "
        "study in a Slurm allocation of several nodes");
  }
  if (hosts.slurm && names.empty()) hosts.count = nodes;
  if (hosts.slurm && hosts.count > nodes) {
    return BadFlag("--hosts=", names, ": names ", hosts.count,
                   " hosts, and the Slurm allocation has ", nodes);
  }
  hosts.ranks_each = ranks_each;
  if (hosts.slurm && ranks_each == 0)
    hosts.ranks_each = NumberOf(environment, "SLURM_NTASKS_PER_NODE");
  if (hosts.ranks_each < 1) {
    return BadFlag(
        "--ranks_per_host is required with --hosts, and in a Slurm allocation "
        "without tasks per node: for example the number of GPUs per host, or "
        "cores / --threads");
  }
  if (hosts.ranks_each > kMostRanksPerHost) {
    return BadFlag("--ranks_per_host=", hosts.ranks_each, ": expected at most ",
                   kMostRanksPerHost);
  }
  ASSIGN_OR_RETURN(hosts.launcher,
                   OnPath(hosts.slurm ? "srun" : "mpirun", environment));
  return hosts;
}

std::vector<int64_t> SizesOver(const StudyHosts& hosts) {
  std::set<int64_t> sizes = {hosts.ranks_each, hosts.ranks_each * hosts.count};
  for (int64_t ranks = 1; ranks < hosts.ranks_each; ranks *= 2)
    sizes.insert(ranks);
  for (int64_t count = 2; count < hosts.count; count *= 2)
    sizes.insert(count * hosts.ranks_each);
  return {sizes.begin(), sizes.end()};
}

absl::Status CheckSize(const StudyHosts& hosts, int64_t world_size) {
  if (hosts.launcher.empty()) return absl::OkStatus();
  const int64_t most = hosts.count * hosts.ranks_each;
  if (world_size <= hosts.ranks_each ||
      (world_size <= most && world_size % hosts.ranks_each == 0)) {
    return absl::OkStatus();
  }
  return BadFlag(
      "--world_sizes: ", world_size, " ranks do not fill whole hosts; with ",
      Counted(hosts.count, "host"), " of ", Counted(hosts.ranks_each, "rank"),
      " use at most ", hosts.ranks_each,
      " (one host), or a multiple of it up to ", most);
}

std::vector<std::string> LaunchPrefix(const StudyHosts& hosts,
                                      int64_t world_size, int64_t threads) {
  if (hosts.launcher.empty()) return {};
  const int64_t each = std::min(world_size, hosts.ranks_each);
  const int64_t used = world_size / each;
  std::vector<std::string> names = hosts.names;
  if (!names.empty()) names.resize(used);
  if (hosts.slurm) {
    std::vector<std::string> words = {hosts.launcher,
                                      absl::StrCat("--nodes=", used),
                                      absl::StrCat("--ntasks=", world_size),
                                      absl::StrCat("--ntasks-per-node=", each),
                                      absl::StrCat("--cpus-per-task=", threads),
                                      "--distribution=block",
                                      "--kill-on-bad-exit=1"};
    if (!names.empty())
      words.push_back("--nodelist=" + absl::StrJoin(names, ","));
    return words;
  }
  // Ranks fill the hosts in order; they are not bound to single cores, since
  // they may have several threads.
  for (std::string& name : names) absl::StrAppend(&name, ":", each);
  return {hosts.launcher,
          "-np",
          absl::StrCat(world_size),
          "--host",
          absl::StrJoin(names, ","),
          "--bind-to",
          "none",
          "-x",
          absl::StrCat("MASTER_ADDR=", hosts.names[0])};
}

}  // namespace rankwise

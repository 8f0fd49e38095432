// Studies over several hosts: the available hosts, the world sizes that fill
// them, and the command that launches a run's ranks.
#ifndef RANKWISE_ANALYSIS_STUDY_HOSTS_H_
#define RANKWISE_ANALYSIS_STUDY_HOSTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace rankwise {

struct StudyHosts {
  // Path of mpirun or srun, which launch all runs; "" on one host, where the
  // trainers launch their own ranks.
  std::string launcher;
  bool slurm = false;              // srun, within an allocation
  std::vector<std::string> names;  // empty if Slurm chooses
  int64_t count = 1;
  int64_t ranks_each = 0;  // maximum; 0 without a launcher
};

// Returns the value of an environment variable, or nullptr.
using Environment = std::function<const char*(const char* name)>;

// `names` is the value of --hosts, "a,b" or "". In a Slurm allocation of
// several nodes, srun launches the runs, on all of them or on `names`;
// elsewhere mpirun does, if there are names. `ranks_each` is --ranks_per_host,
// or 0 for Slurm's tasks per node. InvalidArgument names the flag to change;
// NotFound if the launcher is not installed.
absl::StatusOr<StudyHosts> FindHosts(absl::string_view names,
                                     int64_t ranks_each,
                                     const Environment& environment);

// Returns the powers of two within one host and all of its ranks; then
// repeatedly twice as many hosts, and all hosts.
std::vector<int64_t> SizesOver(const StudyHosts& hosts);

// InvalidArgument unless the ranks fit on one host or fill whole hosts.
absl::Status CheckSize(const StudyHosts& hosts, int64_t world_size);

// Returns the prefix of a run's command line: "/usr/bin/mpirun -np 4 ...";
// empty without a launcher. `threads` is per rank.
std::vector<std::string> LaunchPrefix(const StudyHosts& hosts,
                                      int64_t world_size, int64_t threads);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_HOSTS_H_

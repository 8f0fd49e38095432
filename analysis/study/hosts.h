// Studies over several hosts: which there are, which world sizes fill them, and
// the command that starts a run's ranks there.
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
  // The path of mpirun or srun, which start all runs; "": one host, on which
  // the trainers start their own ranks.
  std::string launcher;
  bool slurm = false;              // srun, in an allocation
  std::vector<std::string> names;  // empty: as Slurm chooses
  int64_t count = 1;
  int64_t ranks_each = 0;  // the most, 0 without a launcher
};

// The value of an environment variable; null: not set.
using Environment = std::function<const char*(const char* name)>;

// `names`: of --hosts, "a,b" or "". In a Slurm allocation of several nodes
// srun starts the runs, on all of them or on `names`; elsewhere mpirun does
// where there are names. `ranks_each`: of --ranks_per_host, 0: as Slurm says.
// InvalidArgument names the flag to change; NotFound where the launcher is not
// installed.
absl::StatusOr<StudyHosts> FindHosts(absl::string_view names,
                                     int64_t ranks_each,
                                     const Environment& environment);

// The powers of two within one host and all of its ranks; then twice as many
// hosts each time, and all.
std::vector<int64_t> SizesOver(const StudyHosts& hosts);

// InvalidArgument unless the ranks are within one host, or fill whole hosts.
absl::Status CheckSize(const StudyHosts& hosts, int64_t world_size);

// What stands before a run's own command line: "/usr/bin/mpirun -np 4 ...".
// Empty without a launcher. `threads`: of a rank.
std::vector<std::string> LaunchPrefix(const StudyHosts& hosts,
                                      int64_t world_size, int64_t threads);

}  // namespace rankwise

#endif  // RANKWISE_ANALYSIS_STUDY_HOSTS_H_

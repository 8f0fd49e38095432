// A PMIx server in place of mpirun's, through which MPI connects ranks that
// --nproc starts.
#ifndef RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_
#define RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// Serves a new job of `ranks` on this machine until the process ends, on a
// thread of libpmix, which is loaded on demand. Returns the NAME=value entries
// for the environment of each rank; MPI then uses the launcher's rank numbers.
// OpenMPI's files are deleted when this process exits, even if ranks are
// killed. NotFound names the package to install; Unavailable the libpmix call
// that failed.
absl::StatusOr<std::vector<std::vector<std::string>>> ServePmix(int ranks);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_

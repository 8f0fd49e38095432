// What mpirun is to MPI: the PMIx server through which ranks that are started
// without it find each other.
#ifndef RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_
#define RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// Serves a new job of `ranks` on this machine until the process ends, on a
// thread of libpmix, which is loaded for it. Returns the NAME=value entries for
// the environment of each rank; MPI then numbers the ranks as the launcher
// does. What OpenMPI keeps in files goes with this process, also when ranks are
// killed. NotFound says what to install; Unavailable what libpmix refuses.
absl::StatusOr<std::vector<std::vector<std::string>>> ServePmix(int ranks);

}  // namespace rankwise

#endif  // RANKWISE_PARALLEL_LAUNCH_PMIX_SERVER_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise {

absl::StatusOr<BackendPtr> MakeMpi(const BackendRequest& request) {
  return absl::UnimplementedError(
      absl::StrCat(ConnectingFailed("MPI", request), WhyNoMpi()));
}

std::string WhyNoMpi() {
  return "this binary was built without OpenMPI; install it (apt-get install "
         "libopenmpi-dev openmpi-bin) and build it again";
}

}  // namespace rankwise

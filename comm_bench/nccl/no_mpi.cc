#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm_bench/nccl/layer.h"
#include "parallel/comm/backends/backends.h"

namespace rankwise::comm_bench {

absl::StatusOr<std::unique_ptr<Layer>> ConnectMpiLayer(
    Control&, const std::vector<int>&) {
  return absl::UnimplementedError(absl::StrCat("--layer=mpi: ", WhyNoMpi()));
}

}  // namespace rankwise::comm_bench

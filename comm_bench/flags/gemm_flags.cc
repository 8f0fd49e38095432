#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(int64_t, gemm_size, 512,
          "rows and columns of the matrices that are multiplied");

namespace rankwise::comm_bench {

void ReadGemmSize(BenchConfig& config, FlagChecks& checks) {
  config.gemm_size = absl::GetFlag(FLAGS_gemm_size);
  checks.InRange<int64_t>("gemm_size", config.gemm_size, 1, 1 << 16);
}

}  // namespace rankwise::comm_bench

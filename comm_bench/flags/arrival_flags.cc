#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(std::string, arrival_us, "", "delays of ranks 0, 1, ...: 0,50");

namespace rankwise::comm_bench {

void ReadArrivals(BenchConfig& config, FlagChecks& checks) {
  config.measure.timing.arrival_seconds = ReadMicroseconds(
      "arrival_us", absl::GetFlag(FLAGS_arrival_us), checks, 1e-6);
}

}  // namespace rankwise::comm_bench

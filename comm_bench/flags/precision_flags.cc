#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(double, precision, 0.05,
          "relative 95 % interval of the median to stop at");
ABSL_FLAG(double, max_seconds, 0.3, "stop measuring a size after this time");

namespace rankwise::comm_bench {

void ReadPrecision(BenchConfig& config, FlagChecks& checks) {
  TimingConfig& timing = config.measure.timing;
  timing.precision = absl::GetFlag(FLAGS_precision);
  timing.max_seconds = absl::GetFlag(FLAGS_max_seconds);
  checks.InRange("precision", timing.precision, 1e-4, 1.0);
  checks.InRange("max_seconds", timing.max_seconds, 1e-3, 3600.0);
}

}  // namespace rankwise::comm_bench

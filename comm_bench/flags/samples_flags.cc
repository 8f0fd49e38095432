#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"
#include "records/command_line.h"

ABSL_FLAG(int64_t, iterations, 0, "fixed number; if 0, chosen by the binary");
ABSL_FLAG(std::string, record, "",
          "file to append raw samples to (docs/records.md)");

namespace rankwise::comm_bench {

void ReadSamples(BenchConfig& config, FlagChecks& checks) {
  int64_t& iterations = config.measure.timing.iterations;
  iterations = absl::GetFlag(FLAGS_iterations);
  checks.InRange<int64_t>("iterations", iterations, 0, 1'000'000);
  config.record_file = UserPath(absl::GetFlag(FLAGS_record));
  checks.FileOrNew("record", config.record_file);
}

}  // namespace rankwise::comm_bench

#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(std::string, timing, "auto",
          "host: its clock, until the device is done; events: the GPU's, in "
          "its stream; auto: events for collectives on GPUs");

namespace rankwise::comm_bench {

void ReadTimer(BenchConfig& config, FlagChecks& checks) {
  config.timing = absl::GetFlag(FLAGS_timing);
  checks.OneOf("timing", config.timing, {"auto", "host", "events"});
}

}  // namespace rankwise::comm_bench

#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(int64_t, warmup, -1,
          "discarded iterations; -1: until times are stable");
ABSL_FLAG(std::string, sync, "barrier",
          "before an iteration: barrier, window (an agreed time) or none");

namespace rankwise::comm_bench {

void ReadSync(BenchConfig& config, FlagChecks& checks) {
  TimingConfig& timing = config.measure.timing;
  timing.warmup = absl::GetFlag(FLAGS_warmup);
  checks.InRange<int64_t>("warmup", timing.warmup, -1, 1'000'000);
  ReadChoice("sync", absl::GetFlag(FLAGS_sync),
             {{"barrier", Sync::kBarrier},
              {"window", Sync::kWindow},
              {"none", Sync::kNone}},
             timing.sync, checks);
}

}  // namespace rankwise::comm_bench

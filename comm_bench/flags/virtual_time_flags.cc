#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(bool, fake_virtual_time, false,
          "calls take exactly their stated cost, in virtual time; needs "
          "--fake_alpha_us");

namespace rankwise::comm_bench {

void ReadVirtualTime(BenchConfig& config, FlagChecks&) {
  config.fake_virtual_time = absl::GetFlag(FLAGS_fake_virtual_time);
}

}  // namespace rankwise::comm_bench

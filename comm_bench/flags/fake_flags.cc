#include "absl/flags/flag.h"
#include "comm_bench/flags/flags.h"

ABSL_FLAG(std::string, fake_skew_us, "",
          "delays of ranks 0, 1, ... per call: 0,50");
ABSL_FLAG(int, fake_tail_every, 0,
          "one call in this number is longer; if 0, none");
ABSL_FLAG(double, fake_tail_us, 0, "microseconds added to those calls");

namespace rankwise::comm_bench {

void ReadFake(BenchConfig& config, FlagChecks& checks) {
  config.fake_skew_us = ReadMicroseconds(
      "fake_skew_us", absl::GetFlag(FLAGS_fake_skew_us), checks);
  config.fake_tail_every = absl::GetFlag(FLAGS_fake_tail_every);
  config.fake_tail_us = absl::GetFlag(FLAGS_fake_tail_us);
  checks.InRange("fake_tail_every", config.fake_tail_every, 0);
  checks.InRange("fake_tail_us", config.fake_tail_us, 0.0, 1e9);
  if ((config.fake_tail_us > 0) != (config.fake_tail_every > 0))
    checks.Complain("--fake_tail_us, --fake_tail_every: need each other");
}

}  // namespace rankwise::comm_bench

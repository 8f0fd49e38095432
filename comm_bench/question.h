// What the binaries of this folder have in common: each answers a question, by
// ranks that measure.
#ifndef RANKWISE_COMM_BENCH_QUESTION_H_
#define RANKWISE_COMM_BENCH_QUESTION_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/sweep/config.h"
#include "comm_bench/sweep/plan.h"
#include "parallel/launch/comm_flags.h"

namespace rankwise::comm_bench {

struct Question {
  const char* name = "";   // of the binary
  const char* usage = "";  // what it measures, and command lines that do
  // What reads the binary's flags (flags/flags.h), one topic each.
  std::vector<void (*)(BenchConfig& config, FlagChecks& checks)> flags = {};
  // What will be measured, or why it cannot be, before anything runs.
  absl::StatusOr<Plan> (*plan)(const BenchConfig& config,
                               const Job& job) = nullptr;
  // Collective. Cancelled after Ctrl-C, with what was measured kept; DataLoss
  // where a result was wrong. Throws what a failed call throws.
  absl::Status (*measure)(const BenchConfig& config, const Plan& plan,
                          const BenchRank& rank) = nullptr;
  // Bandwidths are compared with a copy between two GPUs, and NCCL's log is
  // read for what it chose.
  bool compares_with_hardware = false;
};

// The main function of the question's binary: reads flags, and starts the ranks
// or is one of them. Prints errors; returns the exit code.
int Answer(const Question& question, int argc, char** argv);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_QUESTION_H_

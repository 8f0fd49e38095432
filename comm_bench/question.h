// The common parts of this folder's binaries, each of which answers a question
// by measurements on several ranks.
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
  const char* usage = "";  // description of the measurement, with command lines
  // functions that read the binary's flags (flags/flags.h), one per topic
  std::vector<void (*)(BenchConfig& config, FlagChecks& checks)> flags = {};
  // Returns the measurements to make, or the reason why they are impossible,
  // before anything runs.
  absl::StatusOr<Plan> (*plan)(const BenchConfig& config,
                               const Job& job) = nullptr;
  // Collective. Cancelled after Ctrl-C, with the results so far saved; DataLoss
  // if a result was wrong. Throws the exceptions of failed calls.
  absl::Status (*measure)(const BenchConfig& config, const Plan& plan,
                          const BenchRank& rank) = nullptr;
  // Whether bandwidths are compared with a copy between two GPUs, and NCCL's
  // choices are read from its log.
  bool compares_with_hardware = false;
};

// The main function of the question's binary: reads flags, and launches the
// ranks or runs as one of them. Prints errors; returns the exit code.
int Answer(const Question& question, int argc, char** argv);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_QUESTION_H_

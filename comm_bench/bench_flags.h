// The benchmark's command line, in addition to parallel/launch/comm_flags. Part
// of the binary: the libraries below see only the structs.
#ifndef RANKWISE_COMM_BENCH_BENCH_FLAGS_H_
#define RANKWISE_COMM_BENCH_BENCH_FLAGS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/sweep/config.h"
#include "parallel/comm/communicator.h"

namespace rankwise::comm_bench {

// InvalidArgument names the flag, its value and what is allowed. What flags
// mean together is checked by MakePlan (sweep/plan.h).
absl::StatusOr<BenchConfig> BenchConfigFromFlags();

// Adds to `comm.fake` what only the benchmark's ranks under --backend=fake can
// show: lateness of each rank, and a tail.
absl::Status AddFakeFlags(CommConfig& comm);

// The flags that every rank must be given alike.
std::map<std::string, std::string> SharedFlags();

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_BENCH_FLAGS_H_

// Environment of a rank that may explain its times, apart from the benchmark's
// flags: the machine's topology, the process's CPUs, and the environment
// variables read by the communication and threading libraries.
//
// The only library besides rank_env that reads environment variables, to record
// them, so that runs with different values can be distinguished. Nothing
// depends on their values.
#ifndef RANKWISE_COMM_BENCH_ENVIRONMENT_H_
#define RANKWISE_COMM_BENCH_ENVIRONMENT_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "records/record.h"

struct hwloc_topology;

namespace rankwise::comm_bench {

// Describes this process, in some milliseconds. Unknown fields stay empty.
EnvironmentRecord CollectEnvironment(int64_t rank);

// Returns "1 package, 2 cores, 4 PUs, 1 NUMA node, L2 2 x 1 MiB, L3 32 MiB",
// without unknown caches. `topology` must be loaded.
std::string DescribeTopology(hwloc_topology* topology);

// Returns those of the entries "NAME=value" that affect communication, threads
// or the choice of devices.
std::map<std::string, std::string> RelevantVariables(
    absl::Span<const absl::string_view> entries);

// Formats ascending `cpus` as ranges: "0-3,8".
std::string FormatCpus(absl::Span<const int64_t> cpus);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_ENVIRONMENT_H_

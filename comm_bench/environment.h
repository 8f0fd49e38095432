// What may explain a rank's times and is no flag of the benchmark: the
// machine's topology, the process's CPUs, and the environment variables that
// the libraries underneath read for themselves.
//
// The only library but rank_env that reads environment variables: to write them
// down, so that two runs that differ in them can be distinguished. Nothing
// depends on what it finds.
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

// Of this process; takes some milliseconds. What cannot be found out stays
// empty.
EnvironmentRecord CollectEnvironment(int64_t rank);

// "1 package, 2 cores, 4 PUs, 1 NUMA node, L2 2 x 1 MiB, L3 32 MiB". `topology`
// is loaded. Caches that it does not know are left out.
std::string DescribeTopology(hwloc_topology* topology);

// Of entries "NAME=value", those that steer communication, threads or the
// choice of devices.
std::map<std::string, std::string> RelevantVariables(
    absl::Span<const absl::string_view> entries);

// Ascending `cpus` as ranges: "0-3,8".
std::string FormatCpus(absl::Span<const int64_t> cpus);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_ENVIRONMENT_H_

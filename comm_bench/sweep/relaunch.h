// Several launches of all ranks, for the variance between them.
#ifndef RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_
#define RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_

#include "comm_bench/sweep/bench_config.h"
#include "parallel/comm/launcher.h"

namespace rankwise::comm_bench {

// Starts this binary's ranks `config.relaunch` times with the same arguments,
// one launch after the other, and prints each row's time over the launches
// (launches.h). Returns main's exit code: the first that is not 0.
int Relaunch(const BenchConfig& config, const LaunchConfig& launch, int argc,
             char** argv);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_RELAUNCH_H_

// The four published definitions of how much of communication is hidden behind
// computation. They do not agree; a figure is of use with its name only.
#ifndef RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_
#define RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_

#include <vector>

namespace rankwise::comm_bench {

// Seconds, on any clock.
struct Interval {
  double begin = 0;
  double end = 0;
};
// In any order; they may touch and overlap.
using Intervals = std::vector<Interval>;

// The first two compare three runs: computation alone, communication alone, and
// both together. 1: communication costs nothing; 0: as much as by itself. Below
// 0 where both together take longer than one after the other. The tools
// themselves cut at 0 (and IMB at 1).

// OSU micro-benchmarks: 1 - (all - compute) / comm. The share of communication
// that costs no time.
double OsuOverlap(double all_seconds, double compute_seconds,
                  double comm_seconds);

// Intel MPI Benchmarks, IMB-NBC: (comm + compute - all) / max(comm, compute).
// What is saved, as a share of the longer of the two: 1 only where they are
// equally long.
double ImbNbcOverlap(double all_seconds, double compute_seconds,
                     double comm_seconds);

// The others look into one run of both. NaN without communication, or without
// anything.

// Holistic Trace Analysis: the share of the time with communication in which
// something is computed too. Says nothing of how much each slows the other.
double HtaOverlap(const Intervals& compute, const Intervals& comm);

// torchtitan's interval union: compute + comm - union, in seconds, and as a
// share of the union: of the time in which anything happens.
struct UnionOverlap {
  double seconds = 0;
  double share = 0;
};
UnionOverlap IntervalUnionOverlap(const Intervals& compute,
                                  const Intervals& comm);

// Seconds that lie in at least one of them.
double UnionSeconds(Intervals intervals);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_

// The four published definitions of how much of communication is hidden behind
// computation. They do not agree; a figure is of use with its name only.
#ifndef RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_
#define RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_

#include <algorithm>
#include <limits>

namespace rankwise::comm_bench {

// NaN of nothing.
inline double ShareOf(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

// The first two compare three runs: computation alone, communication alone, and
// both together. 1: communication costs nothing; 0: as much as by itself. Below
// 0 where both together take longer than one after the other. The tools
// themselves cut at 0 (and IMB at 1).

// OSU micro-benchmarks: 1 - (all - compute) / comm. The share of communication
// that costs no time.
inline double OsuOverlap(double all_seconds, double compute_seconds,
                         double comm_seconds) {
  return 1 - ShareOf(all_seconds - compute_seconds, comm_seconds);
}

// Intel MPI Benchmarks, IMB-NBC: (comm + compute - all) / max(comm, compute).
// What is saved, as a share of the longer of the two: 1 only where they are
// equally long.
inline double ImbNbcOverlap(double all_seconds, double compute_seconds,
                            double comm_seconds) {
  return ShareOf(comm_seconds + compute_seconds - all_seconds,
                 std::max(comm_seconds, compute_seconds));
}

// The others look into one run of both.

// When the computation, or the collective, ran; seconds on any clock.
struct TimeSpan {
  double begin = 0, end = 0;
  double seconds() const { return end - begin; }
};

// torchtitan's interval union: compute + comm - union, in seconds, and as a
// share of the union: of the time in which anything happens.
struct UnionOverlap {
  double seconds = 0;
  double share = 0;
};

inline UnionOverlap IntervalUnionOverlap(const TimeSpan& compute,
                                         const TimeSpan& comm) {
  const double both = std::max(0.0, std::min(compute.end, comm.end) -
                                        std::max(compute.begin, comm.begin));
  return {both, ShareOf(both, compute.seconds() + comm.seconds() - both)};
}

// Holistic Trace Analysis: the share of the time with communication in which
// something is computed too. Says nothing of how much each slows the other.
inline double HtaOverlap(const TimeSpan& compute, const TimeSpan& comm) {
  return ShareOf(IntervalUnionOverlap(compute, comm).seconds, comm.seconds());
}

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_OVERLAP_DEFINITIONS_H_

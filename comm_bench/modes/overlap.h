// Overlap of a collective with computation, by all published definitions, and
// the slowdown of each.
#ifndef RANKWISE_COMM_BENCH_MODES_OVERLAP_H_
#define RANKWISE_COMM_BENCH_MODES_OVERLAP_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "comm_bench/collectives/collective.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace rankwise::comm_bench {

// The four published definitions of the share of communication hidden behind
// computation. They disagree: always name the definition of a figure.

// Returns NaN unless `whole` is above 0.
inline double ShareOf(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

// The first two compare three runs: computation alone, communication alone, and
// both together. They are 1 if communication costs no time, 0 if it costs as
// much as alone, and negative if both together take longer than one after the
// other. The original tools clamp at 0 (and IMB at 1).

// OSU micro-benchmarks: 1 - (all - compute) / comm. The share of communication
// that costs no time.
inline double OsuOverlap(double all_seconds, double compute_seconds,
                         double comm_seconds) {
  return 1 - ShareOf(all_seconds - compute_seconds, comm_seconds);
}

// Intel MPI Benchmarks, IMB-NBC: (comm + compute - all) / max(comm, compute).
// The saved time as a share of the longer of the two: 1 only if both are
// equally long.
inline double ImbNbcOverlap(double all_seconds, double compute_seconds,
                            double comm_seconds) {
  return ShareOf(comm_seconds + compute_seconds - all_seconds,
                 std::max(comm_seconds, compute_seconds));
}

// The other two analyze one run of both.

// Time span of the computation or the collective; seconds on any clock.
struct TimeSpan {
  double begin = 0, end = 0;
  double seconds() const { return end - begin; }
};

// torchtitan's interval union: compute + comm - union, in seconds, and as a
// share of the union.
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

// Holistic Trace Analysis: the share of the communication time with concurrent
// computation. Does not show how much each slows the other.
inline double HtaOverlap(const TimeSpan& compute, const TimeSpan& comm) {
  return ShareOf(IntervalUnionOverlap(compute, comm).seconds, comm.seconds());
}

struct OverlapConfig {
  // Rows and columns of the fp32 matrices that are multiplied for the duration
  // of the collective.
  int64_t gemm_size = 512;
  int64_t iterations = 20;  // of each of the three ways
  int64_t warmup = 3;
  // replaces matrix products; may be empty
  std::function<void()> compute = nullptr;
};

// One rank's figures, each a median over the iterations, which have one run of
// each of the three ways. A share of 1 means all.
struct OverlapFigures {
  double compute_seconds = 0, comm_seconds = 0, both_seconds = 0;
  double osu = 0, imb_nbc = 0, hta = 0;
  double union_seconds = 0, union_share = 0;
  // duration in both over duration alone
  double compute_slowdown = 1, comm_slowdown = 1;
};

struct OverlapRank {
  OverlapFigures figures;
  // Distance of each figure to the farther end of its 95 % interval; NaN below
  // kFewestForInterval iterations.
  OverlapFigures reaches;
};

// Equal on every rank except for `own` and comm_ends_seen.
struct OverlapResult {
  int64_t gemms = 0;  // per computation; 0 for another computation
  // Whether this rank observed the collective's end. If not, the figures that
  // analyze the runs of both (hta, union, comm_slowdown) use the end of the
  // wait instead.
  bool comm_ends_seen = true;
  bool stopped = false;            // stopped by `stop`
  OverlapRecord own;               // this rank's samples
  std::vector<OverlapRank> ranks;  // empty without iterations
};

// Returns a function that multiplies two fp32 matrices of `size` rows and
// columns `times` times; on a GPU, it only enqueues the products in the current
// stream.
std::function<void()> MatrixProducts(int64_t size, c10::Device device,
                                     int64_t times);

// Computes alone, communicates alone, and does both (the collective is started
// first, and waited for last), in turn, so that disturbances affect all
// equally. Ranks leave a barrier before each. Collective over all ranks of
// `control`, those of `group`. `stop`, set on any rank, ends it early with the
// results so far, possibly none. Throws the exceptions of failed calls.
OverlapResult RunOverlap(c10d::ProcessGroup& group, Control& control,
                         const Collective& collective, const Call& call,
                         const OverlapConfig& config,
                         const std::atomic<bool>* stop = nullptr);

// Returns a table with a line of figures per rank, and a line with the reach of
// their intervals.
std::string FormatOverlap(const OverlapResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_OVERLAP_H_

// How much of a collective is hidden behind computation, by all published
// definitions, and what each side pays for the other's company.
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

// The four published definitions of how much of communication is hidden behind
// computation. They do not agree: always name the one a figure is by.

// NaN where `whole` is not above 0.
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

struct OverlapConfig {
  // Rows and columns of the fp32 matrices that are multiplied, for as long as
  // the collective takes.
  int64_t gemm_size = 512;
  int64_t iterations = 20;  // of each of the three ways
  int64_t warmup = 3;
  // Instead of matrix products; null: these.
  std::function<void()> compute = nullptr;
};

// One rank's figures: each is a median over the iterations, where an iteration
// has one run of each of the three ways. Shares: 1 is all of it.
struct OverlapFigures {
  double compute_seconds = 0, comm_seconds = 0, both_seconds = 0;
  double osu = 0, imb_nbc = 0, hta = 0;
  double union_seconds = 0, union_share = 0;
  // Within both / alone.
  double compute_slowdown = 1, comm_slowdown = 1;
};

struct OverlapRank {
  OverlapFigures figures;
  // How far the 95 % interval of each figure reaches to its farther side; NaN
  // below six iterations.
  OverlapFigures reaches;
};

// The same on every rank but for `own` and comm_ends_seen.
struct OverlapResult {
  int64_t gemms = 0;  // per computation; 0: another computation
  // Whether this rank saw the collective end. If not, what looks into the runs
  // of both (hta, union, comm_slowdown) takes the wait's return for it.
  bool comm_ends_seen = true;
  bool stopped = false;            // by `stop`
  OverlapRecord own;               // of this rank
  std::vector<OverlapRank> ranks;  // empty without iterations
};

// Multiplies two fp32 matrices of `size` rows and columns as often as `times`
// says; on a GPU the products are in the current stream when it returns.
std::function<void()> MatrixProducts(int64_t size, c10::Device device,
                                     int64_t times);

// Computes alone, communicates alone, and does both (the collective is started
// first, and waited for last), in turn, so that what disturbs the machine
// disturbs all alike. Ranks leave a barrier before each. Collective over all
// ranks of `control`, those of `group`. `stop`, set on any rank, ends it early
// with what was measured, possibly nothing. Throws what a failed call throws.
OverlapResult RunOverlap(c10d::ProcessGroup& group, Control& control,
                         const Collective& collective, const Call& call,
                         const OverlapConfig& config,
                         const std::atomic<bool>* stop = nullptr);

// A table: per rank a line of figures, and one of how far their intervals
// reach.
std::string FormatOverlap(const OverlapResult& result);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_OVERLAP_H_

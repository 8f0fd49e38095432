// How much of a collective is hidden behind computation, by all published
// definitions, and what each side pays for the other's company.
#ifndef RANKWISE_COMM_BENCH_MODES_OVERLAP_H_
#define RANKWISE_COMM_BENCH_MODES_OVERLAP_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm_bench/collectives/collective.h"
#include "parallel/comm/control.h"
#include "records/record.h"

namespace rankwise::comm_bench {

struct OverlapConfig {
  // Rows and columns of the fp32 matrices that are multiplied, for as long as
  // the collective takes.
  int64_t gemm_size = 512;
  int64_t iterations = 20;  // of each of the three ways
  int64_t warmup = 3;
  // Instead of matrix products; null: these.
  std::function<void()> compute = nullptr;
};

// One rank's seconds, an entry per iteration.
struct OverlapSamples {
  std::vector<double> compute, comm;  // alone
  std::vector<double> both;           // together, from start to end
  // Within both, since the collective's start.
  std::vector<double> compute_begin, compute_end, comm_end;
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
  CallDescription call;
  int64_t gemm_size = 0;
  int64_t gemms = 0;  // per computation; 0: another computation
  // Whether this rank saw the collective end. If not, what looks into the runs
  // of both (hta, union, comm_slowdown) takes the wait's return for it.
  bool comm_ends_seen = true;
  bool stopped = false;            // by `stop`
  OverlapSamples own;              // of this rank
  std::vector<OverlapRank> ranks;  // empty without iterations
};

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

// Of this rank, which is `rank`.
OverlapRecord RecordOf(const OverlapResult& result, int rank);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_MODES_OVERLAP_H_

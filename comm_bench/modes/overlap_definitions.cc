#include "comm_bench/modes/overlap_definitions.h"

#include <algorithm>
#include <limits>

namespace rankwise::comm_bench {
namespace {

double Ratio(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

double SecondsOfBoth(const Intervals& compute, const Intervals& comm) {
  Intervals all = compute;
  all.insert(all.end(), comm.begin(), comm.end());
  return UnionSeconds(compute) + UnionSeconds(comm) - UnionSeconds(all);
}

}  // namespace

double OsuOverlap(double all_seconds, double compute_seconds,
                  double comm_seconds) {
  return 1 - Ratio(all_seconds - compute_seconds, comm_seconds);
}

double ImbNbcOverlap(double all_seconds, double compute_seconds,
                     double comm_seconds) {
  return Ratio(comm_seconds + compute_seconds - all_seconds,
               std::max(comm_seconds, compute_seconds));
}

double HtaOverlap(const Intervals& compute, const Intervals& comm) {
  return Ratio(SecondsOfBoth(compute, comm), UnionSeconds(comm));
}

UnionOverlap IntervalUnionOverlap(const Intervals& compute,
                                  const Intervals& comm) {
  const double both = SecondsOfBoth(compute, comm);
  return {both, Ratio(both, UnionSeconds(compute) + UnionSeconds(comm) - both)};
}

double UnionSeconds(Intervals intervals) {
  std::sort(
      intervals.begin(), intervals.end(),
      [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  double seconds = 0, covered = -std::numeric_limits<double>::infinity();
  for (const Interval& interval : intervals) {
    const double begin = std::max(interval.begin, covered);
    if (interval.end <= begin) continue;
    seconds += interval.end - begin;
    covered = interval.end;
  }
  return seconds;
}

}  // namespace rankwise::comm_bench

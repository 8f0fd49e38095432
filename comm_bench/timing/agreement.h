// Agreement between ranks on flags, errors and texts. All functions are
// collective; the bytes that a rank sends and holds do not grow with the number
// of ranks, except in GatherTexts.
#ifndef RANKWISE_COMM_BENCH_TIMING_AGREEMENT_H_
#define RANKWISE_COMM_BENCH_TIMING_AGREEMENT_H_

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// Returns, on every rank, whether `stop` is set on any of them; nullptr counts
// as not set.
bool AnyStopped(Control& control, const std::atomic<bool>* stop);

// Returns `own` if it is an error, or if the status of every rank is OK.
// Otherwise returns Unavailable, naming the first rank that could not do
// `what`, so that no rank continues alone.
absl::Status AllOk(Control& control, const absl::Status& own,
                   const std::string& what);

// Returns the lowest rank whose `own` is true, or -1.
int FirstRankWith(Control& control, bool own);

// Returns every rank's text, by rank. For texts that differ between ranks, such
// as those of each group's first rank. Each rank holds all texts.
std::vector<std::string> GatherTexts(Control& control, const std::string& own);

// Returns `own` of rank `from`, on every rank.
std::string TextFrom(Control& control, const std::string& own, int from);

// InvalidArgument, equal on every rank, names the first flag that differs, a
// rank that differs from rank 0, and both values. `flags` maps names to values;
// the caller omits those that only determine a rank's output files.
absl::Status CheckSameFlags(Control& control,
                            const std::map<std::string, std::string>& flags);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_AGREEMENT_H_

// Whether all ranks were asked for the same.
#ifndef RANKWISE_COMM_BENCH_SWEEP_AGREEMENT_H_
#define RANKWISE_COMM_BENCH_SWEEP_AGREEMENT_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "parallel/comm/control.h"

namespace rankwise::comm_bench {

// Collective. InvalidArgument, the same on every rank, names the first flag
// that differs, a rank that differs from rank 0, and both values. `flags` are
// names with values; those that only say where a rank's output goes are the
// caller's to leave out.
absl::Status CheckSameFlags(Control& control,
                            const std::map<std::string, std::string>& flags);

// Collective. `own`, or, where it is OK but another rank's is not, Unavailable:
// "rank 1 could not WHAT and says why". So that no rank goes on alone.
absl::Status AllOk(Control& control, const absl::Status& own,
                   const std::string& what);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_SWEEP_AGREEMENT_H_

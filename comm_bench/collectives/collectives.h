// The table of all collectives.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVES_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// In the order in which "all" runs them: all_reduce, all_gather,
// reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v, gather, scatter,
// send_recv, ping_pong, bidirectional, barrier.
const std::vector<const Collective*>& AllCollectives();

// InvalidArgument lists the names.
absl::StatusOr<const Collective*> FindCollective(const std::string& name);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVES_H_

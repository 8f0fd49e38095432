// The entries of the table, one per file.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_

#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

extern const Collective kAllReduce;
extern const Collective kAllGather;
extern const Collective kReduceScatter;
extern const Collective kBroadcast;
extern const Collective kReduce;
extern const Collective kAllToAll;
extern const Collective kAllToAllV;
extern const Collective kGather;
extern const Collective kScatter;
extern const Collective kSendRecv;
extern const Collective kPingPong;
extern const Collective kBidirectional;
extern const Collective kBarrier;

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_

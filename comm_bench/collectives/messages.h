// What the entries made of send and recv share.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_MESSAGES_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_MESSAGES_H_

#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

inline constexpr int kMessageTag = 0;

// Starts sending the input to rank `to` and receiving the output from rank
// `from`, neither waiting for the other. NCCL, which would run one after the
// other, gets both as one group.
void Exchange(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
              int to, int from, Works& works);

// This rank's data into the input, nothing into the output.
void FillMessage(const Call& call, Buffers& buffers);
// Whether the output holds the data of rank `from`.
std::optional<WrongElement> CheckMessage(const Call& call,
                                         const Buffers& buffers, int from);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_MESSAGES_H_

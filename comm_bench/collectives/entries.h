// The entries of the table, and what they share.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "comm_bench/collectives/collective.h"
#include "comm_bench/collectives/pattern.h"

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

// The granularity of collectives that give each rank an equal part, and the
// bandwidth factor of those in which a rank's own part is not sent.
constexpr int64_t OnePerRank(int world_size) { return world_size; }
inline double OthersShare(const Call& call) {
  return 1.0 * (call.world_size - 1) / call.world_size;
}

// Elements of one rank's part.
inline int64_t PartOf(const Call& call) { return call.count / call.world_size; }

// `count` elements of the call's type on its device, not set.
at::Tensor NewBuffer(const Call& call, int64_t count);

// Part `index` of `parts` equal ones: a view.
at::Tensor PartOf(const at::Tensor& buffer, int index, int parts);

// The buffers of a collective whose input and output are as large as the row,
// and one tensor in place. The parts are the whole tensors.
Buffers WholeBuffers(const Call& call);

// What stands for unwritten goes into the output, where there is one; then into
// the input: this rank's data, its contribution to a reduction, or, on the
// root only, the root's data.
void FillOwnData(const Call& call, Buffers& buffers);
void FillContribution(const Call& call, Buffers& buffers);
void FillRootsData(const Call& call, Buffers& buffers);

// Whether the output holds the data of rank `from`.
std::optional<WrongElement> CheckDataOf(const Call& call,
                                        const Buffers& buffers, int from);

// Messages of nccl.h.
NcclCall NcclSend(int to, int64_t count, int64_t offset = 0);
NcclCall NcclReceive(int from, int64_t count, int64_t offset = 0);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_

// The entries of the table, and their common functions.
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

// Granularity of collectives that give each rank an equal part, and bandwidth
// factor of those that do not send a rank's own part.
constexpr int64_t OnePerRank(int world_size) { return world_size; }
inline double OthersShare(const Call& call) {
  return 1.0 * (call.world_size - 1) / call.world_size;
}

// Returns the elements of one rank's part.
inline int64_t PartOf(const Call& call) { return call.count / call.world_size; }

// Returns `count` uninitialized elements of the call's type on its device.
at::Tensor NewBuffer(const Call& call, int64_t count);

// Returns a view of part `index` of `parts` equal ones.
at::Tensor PartOf(const at::Tensor& buffer, int index, int parts);

// Returns the buffers of a collective with input and output as large as the
// row; one tensor in place. The parts are the whole tensors.
Buffers WholeBuffers(const Call& call);

// Write kUnwritten into the output, if any, and then this rank's data, its
// contribution to a reduction, or (on the root only) the root's data into the
// input.
void FillOwnData(const Call& call, Buffers& buffers);
void FillContribution(const Call& call, Buffers& buffers);
void FillRootsData(const Call& call, Buffers& buffers);

// Checks that the output contains the data of rank `from`.
std::optional<WrongElement> CheckDataOf(const Call& call,
                                        const Buffers& buffers, int from);

// Returns a message of nccl.h.
NcclCall NcclSend(int to, int64_t count, int64_t offset = 0);
NcclCall NcclReceive(int from, int64_t count, int64_t offset = 0);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_ENTRIES_H_

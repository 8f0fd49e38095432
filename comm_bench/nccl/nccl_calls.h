// Which calls of nccl.h make up each collective of the table. Without NCCL, so
// that it can be tested anywhere.
#ifndef RANKWISE_COMM_BENCH_NCCL_NCCL_CALLS_H_
#define RANKWISE_COMM_BENCH_NCCL_NCCL_CALLS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "comm_bench/collectives/collective.h"

namespace rankwise::comm_bench {

// One call of nccl.h. Offsets are elements from the begin of the call's input
// and output; those that the kind has no use for are 0.
struct NcclCall {
  enum class Kind {
    kAllReduce,
    kBroadcast,
    kReduce,
    kAllGather,
    kReduceScatter,
    kSend,
    kReceive,
  };

  Kind kind = Kind::kAllReduce;
  // As nccl.h counts: of the whole buffer, but of one rank's part for
  // kAllGather and kReduceScatter.
  int64_t count = 0;
  int peer = -1;  // or the root
  int64_t input_offset = 0;
  int64_t output_offset = 0;

  friend bool operator==(const NcclCall&, const NcclCall&) = default;
};

// Calls between ncclGroupStart and ncclGroupEnd, if there is more than one.
using NcclGroup = std::vector<NcclCall>;

// What rank `call.rank` calls, group after group, for the buffers that the
// collective's entry makes; nothing where it has no part.
//
// Reductions, broadcast and all_gather are NCCL's own calls. In place their
// input and output lie as nccl.h wants it: at one address, or a rank's part at
// `rank * count` elements of the whole. The others are sends and receives in
// one group, as NCCL's documentation spells them ("Point-to-point
// communication"); a rank's own part is sent to itself, but in place, where it
// lies where it belongs. ping_pong is two groups, since the answer follows the
// message. InvalidArgument as CheckNcclCalls.
absl::StatusOr<std::vector<NcclGroup>> NcclCallsOf(const Collective& collective,
                                                   const Call& call);

// Why nccl.h has nothing for this collective: InvalidArgument, "barrier with
// --layer=nccl: ...".
absl::Status CheckNcclCalls(const Collective& collective);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_NCCL_NCCL_CALLS_H_

// What the benchmark knows of a collective: one table entry each.
#ifndef RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVE_H_
#define RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "comm_bench/collectives/traffic_matrix.h"
#include "torch/csrc/distributed/c10d/Types.hpp"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace rankwise::comm_bench {

using ReduceOp = c10d::ReduceOp::RedOpType;  // SUM, AVG, MIN, MAX or PRODUCT

// The names of element types and reductions on the command line and in records.

// float32, float64, float16, bfloat16, int32, int64, uint8.
const std::vector<c10::ScalarType>& AllDtypes();
// sum, avg, min, max, prod.
const std::vector<ReduceOp>& AllOps();

// As PyTorch spells it, "float32".
std::string DtypeName(c10::ScalarType dtype);
// Also takes fp32, fp64, fp16 and bf16. InvalidArgument lists the names.
absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name);

// As nccl-tests spells it, "avg".
std::string OpName(ReduceOp op);
// InvalidArgument lists the names.
absl::StatusOr<ReduceOp> ParseOp(const std::string& name);

// Memory that a communication library has registered, so that it can send from
// it and receive into it without copies of its own. Outlives its tensors.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  // `count` elements, not set. Throws c10::Error where memory is short or the
  // library refuses it.
  virtual at::Tensor New(int64_t count, c10::ScalarType dtype) = 0;
};

// One row of the output, as one rank sees it.
struct Call {
  // Elements of the row: of the whole buffer as nccl-tests counts it. That is
  // every rank's buffer for all_reduce, broadcast, reduce and messages, the
  // output for all_gather, the input for reduce_scatter, what a rank sends to
  // all for all_to_all, and the root's buffer for gather and scatter.
  int64_t count = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::SUM;  // of collectives that reduce
  int root = 0;                 // of collectives that have one
  bool in_place = false;
  int rank = 0;  // in the group
  int world_size = 1;
  c10::Device device = c10::kCPU;
  // all_to_all_v only: the share of `count` that each rank sends to each.
  const TrafficMatrix* traffic = nullptr;
  // Where its buffers come from; null: the device's usual allocator.
  RegisteredMemory* memory = nullptr;

  int64_t bytes() const;
};

// Tensors of one call; `input` and `output` are one tensor, or views of one,
// when the call is in place. The parts are views, made once, for the functions
// of c10d that take lists.
struct Buffers {
  at::Tensor input = {};
  at::Tensor output = {};
  std::vector<at::Tensor> input_parts = {};
  std::vector<at::Tensor> output_parts = {};
  std::vector<int64_t> input_splits = {};
  std::vector<int64_t> output_splits = {};
};

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

// The first wrong element on this rank.
struct WrongElement {
  int64_t index = 0;  // into the output
  double expected = 0;
  double got = 0;
  int64_t total = 1;  // wrong elements of this rank
};

// One call of nccl.h. Offsets are elements from the start of the call's input
// and output, 0 where the kind does not use them.
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

struct Collective {
  const char* name = "";     // "all_reduce"
  const char* summary = "";  // one line for --help and --list

  bool reduces = false;           // takes an op
  bool rooted = false;            // takes a root
  bool has_elements = true;       // false: barrier, one row without sizes
  bool in_place = true;           // can run in place
  bool prefers_in_place = false;  // what c10d's own call does
  bool replayable = false;        // //comm_bench:replay repeats it
  bool takes_traffic = false;     // --traffic and --traffic_skew apply to it
  int min_world_size = 1;
  // A call's time is divided by this: 2 for a round trip of which half is
  // reported.
  double trips = 1;

  // `count` must be a multiple of it.
  int64_t (*granularity)(int world_size) = [](int) { return int64_t{1}; };
  // busbw = algbw * bus_factor, algbw = bytes / time. Requires a call that
  // CheckCall accepts.
  double (*bus_factor)(const Call& call) = [](const Call&) { return 1.0; };
  // Why this call cannot run, beyond what the fields above say; null: it always
  // can.
  absl::Status (*refuse)(const Call& call) = nullptr;

  Buffers (*make)(const Call& call) = nullptr;
  // Writes the pattern (pattern.h) into the input, and something else into what
  // the call must overwrite.
  void (*fill)(const Call& call, Buffers& buffers) = nullptr;
  // Starts the call and appends what must be waited for: nothing, if it has
  // already been waited for.
  void (*start)(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                Works& works) = nullptr;
  // What rank `call.rank` calls of nccl.h itself, group after group, for the
  // buffers that `make` makes; empty groups are no calls. Null: nccl.h has
  // nothing for it.
  //
  // Reductions, broadcast and all_gather are NCCL's own calls. In place their
  // input and output lie as nccl.h wants it: at one address, or a rank's part
  // at `rank * count` elements of the whole. The others are sends and receives
  // in one group, as NCCL's documentation spells them ("Point-to-point
  // communication"); a rank's own part is sent to itself, but in place, where
  // it lies where it belongs.
  std::vector<NcclGroup> (*nccl_calls)(const Call& call) = nullptr;
  // Compares the output with what the pattern makes it. Only after fill and one
  // start.
  std::optional<WrongElement> (*check)(const Call& call,
                                       const Buffers& buffers) = nullptr;
};

// The table, in the order in which "all" runs it: all_reduce, all_gather,
// reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v, gather, scatter,
// send_recv, ping_pong, bidirectional, barrier.
const std::vector<const Collective*>& AllCollectives();

// InvalidArgument lists the names.
absl::StatusOr<const Collective*> FindCollective(const std::string& name);

// Why `call` cannot run, by all that the entry says: InvalidArgument,
// "all_reduce of int32 with op avg: the average of integers is no integer".
absl::Status CheckCall(const Collective& collective, const Call& call);

// The calls of nccl.h without empty groups. Requires that it has some for the
// collective.
std::vector<NcclGroup> NcclCallsOf(const Collective& collective,
                                   const Call& call);

// The count for a row of about `bytes`: rounded down to the granularity, at
// least one granule. 0 for a collective without elements.
int64_t CountFor(const Collective& collective, int64_t bytes,
                 c10::ScalarType dtype, int world_size);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVE_H_

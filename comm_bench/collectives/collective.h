// Properties of a collective: one table entry each.
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

// Names of element types and reductions, on the command line and in records.

// Returns float32, float64, float16, bfloat16, int32, int64, uint8.
const std::vector<c10::ScalarType>& AllDtypes();
// Returns sum, avg, min, max, prod.
const std::vector<ReduceOp>& AllOps();

// Returns PyTorch's name, "float32".
std::string DtypeName(c10::ScalarType dtype);
// Also accepts fp32, fp64, fp16 and bf16. InvalidArgument lists the names.
absl::StatusOr<c10::ScalarType> ParseDtype(const std::string& name);

// Returns the name used by nccl-tests, "avg".
std::string OpName(ReduceOp op);
// InvalidArgument lists the names.
absl::StatusOr<ReduceOp> ParseOp(const std::string& name);

// Memory registered with a communication library, which sends from it and
// receives into it without additional copies. Must outlive its tensors.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  // Returns `count` uninitialized elements. Throws c10::Error if memory is
  // insufficient or the library rejects it.
  virtual at::Tensor New(int64_t count, c10::ScalarType dtype) = 0;
};

// One row of the output, from the perspective of one rank.
struct Call {
  // Elements of the row: of the whole buffer, as in nccl-tests. That is every
  // rank's buffer for all_reduce, broadcast, reduce and messages, the output
  // for all_gather, the input for reduce_scatter, the total sent by a rank for
  // all_to_all, and the root's buffer for gather and scatter.
  int64_t count = 0;
  c10::ScalarType dtype = c10::ScalarType::Float;
  ReduceOp op = ReduceOp::SUM;  // for collectives that reduce
  int root = 0;                 // for collectives with a root
  bool in_place = false;
  int rank = 0;  // in the group
  int world_size = 1;
  c10::Device device = c10::kCPU;
  // all_to_all_v only: the shares of `count` that each rank sends
  const TrafficMatrix* traffic = nullptr;
  // source of the buffers; nullptr for the device's usual allocator
  RegisteredMemory* memory = nullptr;

  int64_t bytes() const;
};

// Tensors of one call. If the call is in place, `input` and `output` are one
// tensor, or views of one. The parts are views, created once, for the functions
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
  int64_t index = 0;  // index in the output
  double expected = 0;
  double got = 0;
  int64_t total = 1;  // wrong elements of this rank
};

// One call of nccl.h. Offsets are in elements from the start of the call's
// input and output; 0 if the kind does not use them.
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
  // As in nccl.h: of the whole buffer, except for kAllGather and
  // kReduceScatter, where it is of one rank's part.
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
  bool has_elements = true;       // otherwise barrier: one row without sizes
  bool in_place = true;           // supports in-place calls
  bool prefers_in_place = false;  // c10d's own call is in place
  bool replayable = false;        // supported by //comm_bench:replay
  bool takes_traffic = false;     // affected by --traffic and --traffic_skew
  int min_world_size = 1;
  // divides an iteration's time: 2 for a round trip of which half is reported
  double calls_per_iteration = 1;

  // `count` must be a multiple of this.
  int64_t (*granularity)(int world_size) = [](int) { return int64_t{1}; };
  // busbw = algbw * bus_factor, algbw = bytes / time. Requires a call that
  // CheckCall accepts.
  double (*bus_factor)(const Call& call) = [](const Call&) { return 1.0; };
  // Returns why this call cannot run, in addition to the fields above; nullptr
  // if it always can.
  absl::Status (*refuse)(const Call& call) = nullptr;

  Buffers (*make)(const Call& call) = nullptr;
  // Writes the pattern (pattern.h) into the input, and other values into memory
  // that the call must overwrite.
  void (*fill)(const Call& call, Buffers& buffers) = nullptr;
  // Starts the call and appends the works to wait for; none if the call has
  // already completed.
  void (*start)(c10d::ProcessGroup& group, const Call& call, Buffers& buffers,
                Works& works) = nullptr;
  // Returns the calls of nccl.h by rank `call.rank`, group after group, for the
  // buffers of `make`; empty groups are ignored. nullptr if nccl.h does not
  // support the collective.
  //
  // Reductions, broadcast and all_gather are NCCL's own calls. In place, input
  // and output are placed as nccl.h requires: at one address, or a rank's part
  // at `rank * count` elements of the whole. The other collectives are sends
  // and receives in one group, as in NCCL's documentation ("Point-to-point
  // communication"); a rank sends its own part to itself, except in place,
  // where it is already in its position.
  std::vector<NcclGroup> (*nccl_calls)(const Call& call) = nullptr;
  // Compares the output with the expected pattern. Requires fill and one start
  // before.
  std::optional<WrongElement> (*check)(const Call& call,
                                       const Buffers& buffers) = nullptr;
};

// Returns the table, in the order of "all": all_reduce, all_gather,
// reduce_scatter, broadcast, reduce, all_to_all, all_to_all_v, gather, scatter,
// send_recv, ping_pong, bidirectional, barrier.
const std::vector<const Collective*>& AllCollectives();

// InvalidArgument lists the names.
absl::StatusOr<const Collective*> FindCollective(const std::string& name);

// InvalidArgument if the entry does not support `call`: "all_reduce of int32
// with op avg: the average of integers is not an integer".
absl::Status CheckCall(const Collective& collective, const Call& call);

// Returns the calls of nccl.h without empty groups. Requires that the
// collective has some.
std::vector<NcclGroup> NcclCallsOf(const Collective& collective,
                                   const Call& call);

// Returns the count for a row of about `bytes`: rounded down to the
// granularity, at least one granule. 0 for a collective without elements.
int64_t CountFor(const Collective& collective, int64_t bytes,
                 c10::ScalarType dtype, int world_size);

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_COLLECTIVES_COLLECTIVE_H_

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "comm_bench/nccl/layer.h"
#include "comm_bench/timing/agreement.h"
#include "parallel/comm/backends/mpi/engine.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::comm_bench {
namespace {

// Memory read and written by one of a collective's calls.
struct Memory {
  char* from;
  char* to;
  int count;
  size_t bytes;  // of `count` elements
};

class MpiLayer : public Layer {
 public:
  MpiLayer(MpiEngine& engine, MPI_Comm comm, int rank)
      : engine_(engine), mpi_(engine.mpi()), comm_(comm), rank_(rank) {}

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }

  // Plans and checks once, outside the timed call, which blocks.
  Start Prepare(const Collective& collective, const Call& call) override {
    std::vector<NcclGroup> groups = NcclCallsOf(collective, call);
    for (const NcclGroup& group : groups) {
      for (const NcclCall& each : group) MpiCount(each.count);
    }
    return [this, groups = std::move(groups), op = call.op](Buffers& buffers,
                                                            Works&) {
      const auto lock = engine_.Lock();
      for (const NcclGroup& group : groups) Run(group, buffers, op);
    };
  }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> NewRegistered(
      c10::Device) override {
    return absl::UnimplementedError("--registered: MPI registers no buffers");
  }

 private:
  void Run(const NcclGroup& group, const Buffers& buffers, ReduceOp op) {
    std::vector<MPI_Request> requests;
    for (const NcclCall& call : group) {
      const at::Tensor& either =
          buffers.output.defined() ? buffers.output : buffers.input;
      const auto at_offset = [](const at::Tensor& tensor, int64_t offset) {
        return tensor.defined() ? static_cast<char*>(tensor.data_ptr()) +
                                      offset * tensor.element_size()
                                : nullptr;
      };
      const Memory memory = {
          at_offset(buffers.input, call.input_offset),
          at_offset(buffers.output, call.output_offset),
          static_cast<int>(call.count),  // checked by Prepare
          static_cast<size_t>(call.count * either.element_size())};
      if (call.kind == NcclCall::Kind::kSend ||
          call.kind == NcclCall::Kind::kReceive) {
        Message(call, memory, either.scalar_type(), requests.emplace_back());
      } else {
        RunOne(call, memory, either.scalar_type(), op);
      }
    }
    mpi_.Check(mpi_.Waitall(static_cast<int>(requests.size()), requests.data(),
                            MPI_STATUSES_IGNORE),
               "MPI_Waitall");
  }

  void Message(const NcclCall& call, const Memory& memory,
               c10::ScalarType dtype, MPI_Request& request) {
    const MPI_Datatype type = mpi_.TypeOf(dtype);
    if (call.kind == NcclCall::Kind::kSend) {
      mpi_.Check(mpi_.Isend(memory.from, memory.count, type, call.peer,
                            /*tag=*/0, comm_, &request),
                 "MPI_Isend");
    } else {
      mpi_.Check(mpi_.Irecv(memory.to, memory.count, type, call.peer,
                            /*tag=*/0, comm_, &request),
                 "MPI_Irecv");
    }
  }

  void RunOne(const NcclCall& call, const Memory& memory, c10::ScalarType dtype,
              ReduceOp op) {
    using Kind = NcclCall::Kind;
    const auto [from, to, count, bytes] = memory;
    if (call.kind == Kind::kBroadcast) {
      if (rank_ == call.peer && from != to) std::memcpy(to, from, bytes);
      return mpi_.Check(
          mpi_.Bcast(to, count, mpi_.TypeOf(dtype), call.peer, comm_),
          "MPI_Bcast");
    }
    if (call.kind == Kind::kAllGather) {
      const MPI_Datatype type = mpi_.TypeOf(dtype);
      const bool in_place = from == to + rank_ * bytes;
      return mpi_.Check(mpi_.Allgather(in_place ? MPI_IN_PLACE : from, count,
                                       type, to, count, type, comm_),
                        "MPI_Allgather");
    }
    const auto how = mpi_.ReductionOf(dtype, op);
    const void* const own = from == to ? MPI_IN_PLACE : from;
    if (call.kind == Kind::kAllReduce) {
      mpi_.Check(mpi_.Allreduce(own, to, count, how.type, how.op, comm_),
                 "MPI_Allreduce");
    } else if (call.kind == Kind::kReduce) {
      const bool is_root = rank_ == call.peer;
      mpi_.Check(mpi_.Reduce(is_root ? own : from, to, count, how.type, how.op,
                             call.peer, comm_),
                 "MPI_Reduce");
    } else {
      ReduceScatter(memory, how);
    }
  }

  // MPI's result must not overlap memory that other ranks read: in place, as in
  // NCCL, the part is copied there afterwards.
  void ReduceScatter(const Memory& memory, const MpiApi::Reduction& how) {
    const bool in_place = memory.to == memory.from + rank_ * memory.bytes;
    if (in_place) part_.resize(memory.bytes);
    mpi_.Check(mpi_.Reduce_scatter_block(memory.from,
                                         in_place ? part_.data() : memory.to,
                                         memory.count, how.type, how.op, comm_),
               "MPI_Reduce_scatter_block");
    if (in_place) std::memcpy(memory.to, part_.data(), memory.bytes);
  }

  MpiEngine& engine_;
  const MpiApi& mpi_;
  const MPI_Comm comm_;
  const int rank_;  // in the group
  std::vector<char> part_;
};

absl::StatusOr<std::unique_ptr<Layer>> Connect(Control& control,
                                               std::vector<int> ranks) {
  MpiEngine* const engine = MpiEngine::Running();
  if (engine == nullptr) {
    return absl::FailedPreconditionError(
        "--layer=mpi measures MPI under --backend=mpi; give both");
  }
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(control.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), control.rank());
  try {
    return std::make_unique<MpiLayer>(*engine, engine->Connect(ranks),
                                      static_cast<int>(own - ranks.begin()));
  } catch (const std::exception& error) {
    return absl::UnavailableError(PlainMessage(error));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> ConnectMpiLayer(
    Control& control, const std::vector<int>& ranks) {
  absl::StatusOr<std::unique_ptr<Layer>> layer = Connect(control, ranks);
  RETURN_IF_ERROR(AllOk(control, layer.status(), "connect through mpi.h"));
  return layer;
}

}  // namespace rankwise::comm_bench

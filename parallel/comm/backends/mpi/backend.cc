// Implements c10d's collectives and messages by MPI.
#include <atomic>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/_foreach_copy.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/empty_like.h"
#include "ATen/ops/flatten_dense_tensors.h"
#include "ATen/ops/unflatten_dense_tensors.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/mpi/engine.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "torch/csrc/distributed/c10d/Utils.hpp"

namespace rankwise {
namespace {

using at::Tensor;
using c10d::OpType;
using Operation = MpiWork::Operation;
using Sizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Returns `tensor`. Throws unless it is dense, since MPI uses its elements in
// memory order.
const Tensor& Dense(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_cpu() && tensor.layout() == at::kStrided,
              "backend=mpi carries dense CPU tensors only, not one on ",
              tensor.device());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(),
              "a collective's tensor must be dense; call contiguous()");
  return tensor;
}

const Tensor& Contiguous(const Tensor& tensor) {
  TORCH_CHECK(Dense(tensor).is_contiguous(),
              "a collective's tensor must be contiguous; call contiguous()");
  return tensor;
}

const Tensor& Only(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "backend=mpi takes one tensor, not ",
              tensors.size());
  return tensors[0];
}

int Count(const Tensor& tensor) { return MpiCount(tensor.numel()); }

// Copies consecutive parts of `joined` to `tensors`.
void Split(const Tensor& joined, Tensors tensors) {
  at::_foreach_copy_(tensors, at::unflatten_dense_tensors(joined, tensors));
}

Tensor EmptyFor(const Tensors& tensors) {
  int64_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.numel();
  return at::empty({count}, tensors[0].options());
}

bool Overlap(const Tensor& a, const Tensor& b) {
  const auto* const first = static_cast<const char*>(a.const_data_ptr());
  const auto* const second = static_cast<const char*>(b.const_data_ptr());
  return first < second + b.nbytes() && second < first + a.nbytes();
}

// Numbers and offsets of the elements sent to, or received from, each rank.
struct Parts {
  // `rows`: rows of `tensor` per rank; empty for equal parts.
  Parts(const Tensor& tensor, const Sizes& rows, int ranks)
      : counts(ranks), begins(ranks) {
    c10d::checkSplitSizes(rows, tensor, ranks);
    MpiCount(static_cast<int64_t>(
        c10d::computeLengthsAndOffsets(rows, tensor, &counts, &begins)));
  }
  explicit Parts(const Tensors& tensors)
      : counts(tensors.size()), begins(tensors.size()) {
    MpiCount(static_cast<int64_t>(
        c10d::computeLengthsAndOffsets(tensors, &counts, &begins)));
  }

  std::vector<int> counts, begins;
};

class MpiBackend : public c10d::Backend {
 public:
  MpiBackend(MpiEngine& engine, std::shared_ptr<MpiGroup> group,
             const GroupPlace& place)
      : Backend(place.rank, place.size()),
        engine_(engine),
        mpi_(engine.mpi()),
        group_(std::move(group)) {}
  ~MpiBackend() override { PublishEnd("has left"); }

  const std::string getBackendName() const override { return "mpi"; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("mpi", group_->timeout);
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    group_->timeout = timeout;
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }

  void abort() override {
    PublishEnd("has given up");
    engine_.Fail(*group_, "given up");
  }

  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& opts) override {
    const Tensor& data = Dense(Only(tensors));
    return Run(OpType::BROADCAST, "mpi:broadcast", opts, tensors, tensors,
               Bind(mpi_.Ibcast, data.data_ptr(), Count(data), TypeOf(data),
                    Root(opts)));
  }

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    const Tensor& data = Dense(Only(tensors));
    const auto [type, op] = mpi_.ReductionOf(data.scalar_type(), opts.reduceOp);
    return Run(OpType::ALLREDUCE, "mpi:all_reduce", opts, tensors, tensors,
               Bind(mpi_.Iallreduce, MPI_IN_PLACE, data.data_ptr(), Count(data),
                    type, op));
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const Tensor& data = Dense(Only(tensors));
    const auto [type, op] = mpi_.ReductionOf(data.scalar_type(), opts.reduceOp);
    const bool is_root = Root(opts) == getRank();
    void* const own = data.data_ptr();
    return Run(
        OpType::REDUCE, "mpi:reduce", opts, tensors, tensors,
        Bind(mpi_.Ireduce, is_root ? MPI_IN_PLACE : own,
             is_root ? own : nullptr, Count(data), type, op, Root(opts)));
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    TORCH_CHECK(outputs.size() == 1, "all_gather takes one list of outputs");
    const Tensor joined = EmptyFor(outputs[0]);
    return AllGather(OpType::ALLGATHER, joined, Only(inputs).contiguous(), opts,
                     outputs[0], [=, to = outputs[0]] { Split(joined, to); });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return AllGather(OpType::_ALLGATHER_BASE, output, input, opts, {output});
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    const bool is_root = Root(opts) == getRank();
    TORCH_CHECK(outputs.size() == (is_root ? 1 : 0),
                "gather takes one list of outputs, on the root only");
    const Tensors to = is_root ? outputs[0] : Tensors();
    const Tensor& own = Contiguous(Only(inputs));
    const Tensor all = is_root ? EmptyFor(to) : own;
    if (is_root) CheckSizes("gather", all, own);
    return Run(OpType::GATHER, "mpi:gather", opts, inputs, to,
               Bind(mpi_.Igather, own.data_ptr(), Count(own), TypeOf(own),
                    all.data_ptr(), Count(own), TypeOf(own), Root(opts)),
               [=] {
                 if (is_root) Split(all, to);
               });
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    const bool is_root = Root(opts) == getRank();
    TORCH_CHECK(inputs.size() == (is_root ? 1 : 0),
                "scatter takes one list of inputs, on the root only");
    const Tensor& own = Contiguous(Only(outputs));
    const Tensor all = is_root ? at::flatten_dense_tensors(inputs[0]) : own;
    if (is_root) CheckSizes("scatter", all, own);
    return Run(OpType::SCATTER, "mpi:scatter", opts, {all}, outputs,
               Bind(mpi_.Iscatter, all.data_ptr(), Count(own), TypeOf(own),
                    own.data_ptr(), Count(own), TypeOf(own), Root(opts)));
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    TORCH_CHECK(inputs.size() == 1, "reduce_scatter takes one list of inputs");
    return ReduceScatter(OpType::REDUCE_SCATTER, Only(outputs),
                         at::flatten_dense_tensors(inputs[0]), opts);
  }
  WorkPtr _reduce_scatter_base(
      Tensor& output, Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::_REDUCE_SCATTER_BASE, output, input, opts);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input, Sizes& output_rows,
                        Sizes& input_rows,
                        const c10d::AllToAllOptions& opts) override {
    return AllToAll(OpType::ALLTOALL_BASE, Contiguous(output),
                    Parts(output, output_rows, getSize()), Contiguous(input),
                    Parts(input, input_rows, getSize()), opts, {output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& opts) override {
    const Tensor joined = EmptyFor(outputs);
    return AllToAll(OpType::ALLTOALL, joined, Parts(outputs),
                    at::flatten_dense_tensors(inputs), Parts(inputs), opts,
                    outputs, [=, to = outputs] { Split(joined, to); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return Run(OpType::BARRIER, "mpi:barrier", opts, {}, {},
               Bind(mpi_.Ibarrier));
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    const Tensor& data = Contiguous(Only(tensors));
    return Start({OpType::SEND,
                  "mpi:send",
                  tensors,
                  {},
                  Bind(mpi_.Isend, data.data_ptr(), Count(data), TypeOf(data),
                       to, mpi_.CheckedTag(tag))});
  }
  WorkPtr recv(Tensors& tensors, int from, int tag) override {
    return Receive(OpType::RECV, "mpi:recv", tensors, from, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return Receive(OpType::RECVANYSOURCE, "mpi:recv_any_source", tensors,
                   MPI_ANY_SOURCE, tag);
  }

 private:
  template <typename Options>
  static int Root(const Options& opts) {
    return static_cast<int>(opts.rootRank);
  }

  MPI_Datatype TypeOf(const Tensor& tensor) const {
    return mpi_.TypeOf(tensor.scalar_type());
  }

  // Binds a call of `function`, whose last two arguments are the group's
  // communicator and a request.
  template <typename Function, typename... Arguments>
  Operation Bind(Function function, Arguments... arguments) const {
    return [=, comm = group_->comm](MPI_Request* request) {
      return function(arguments..., comm, request);
    };
  }

  WorkPtr Start(MpiWork::Call call) {
    auto work = c10::make_intrusive<MpiWork>(engine_, group_, std::move(call));
    engine_.Submit(work);
    return work;
  }

  template <typename Options>
  WorkPtr Run(OpType type, const char* title, const Options& opts,
              const Tensors& inputs, const Tensors& outputs, Operation start,
              std::function<void()> finish = {}) {
    ++calls_;
    return Start(
        {type, title, inputs, outputs, std::move(start), std::move(finish),
         opts.timeout == c10d::kUnsetTimeout ? group_->timeout : opts.timeout});
  }

  // Checks that `whole` is as large as the `part`s of all ranks together.
  void CheckSizes(const char* call, const Tensor& whole,
                  const Tensor& part) const {
    TORCH_CHECK(
        Contiguous(whole).numel() == Contiguous(part).numel() * getSize() &&
            whole.scalar_type() == part.scalar_type(),
        call, ": ", whole.numel(), " elements of ", whole.scalar_type(),
        " are not ", part.numel(), " of ", part.scalar_type(), " for each of ",
        getSize(), " ranks");
  }

  WorkPtr AllGather(OpType type, const Tensor& output, const Tensor& input,
                    const c10d::AllgatherOptions& opts, const Tensors& results,
                    std::function<void()> finish = {}) {
    CheckSizes("all_gather", output, input);
    auto* const all = static_cast<char*>(output.data_ptr());
    const bool in_place = input.data_ptr() == all + getRank() * input.nbytes();
    return Run(
        type, "mpi:all_gather", opts, {input}, results,
        Bind(mpi_.Iallgather, in_place ? MPI_IN_PLACE : input.data_ptr(),
             Count(input), TypeOf(input), all, Count(input), TypeOf(input)),
        std::move(finish));
  }

  WorkPtr ReduceScatter(OpType type, const Tensor& output, const Tensor& input,
                        const c10d::ReduceScatterOptions& opts) {
    CheckSizes("reduce_scatter", input, output);
    const auto [mpi_type, op] =
        mpi_.ReductionOf(input.scalar_type(), opts.reduceOp);
    // MPI must not write results to memory that other ranks may still read.
    const bool overlap = Overlap(input, output);
    const Tensor target = overlap ? at::empty_like(output) : output;
    return Run(type, "mpi:reduce_scatter", opts, {input}, {output},
               Bind(mpi_.Ireduce_scatter_block, input.data_ptr(),
                    target.data_ptr(), Count(target), mpi_type, op),
               [=] {
                 if (overlap) output.copy_(target);
               });
  }

  WorkPtr AllToAll(OpType type, const Tensor& output, Parts to,
                   const Tensor& input, Parts from,
                   const c10d::AllToAllOptions& opts, const Tensors& results,
                   std::function<void()> finish = {}) {
    TORCH_CHECK(output.scalar_type() == input.scalar_type(),
                "all_to_all: the output is ", output.scalar_type(),
                ", the input ", input.scalar_type());
    // MPI reads the lists until completion: the call owns them.
    const auto start = [=, this, type = TypeOf(input),
                        comm = group_->comm](MPI_Request* request) {
      return mpi_.Ialltoallv(input.data_ptr(), from.counts.data(),
                             from.begins.data(), type, output.data_ptr(),
                             to.counts.data(), to.begins.data(), type, comm,
                             request);
    };
    return Run(type, "mpi:all_to_all", opts, {input}, results, start,
               std::move(finish));
  }

  WorkPtr Receive(OpType type, const char* title, const Tensors& tensors,
                  int from, int tag) {
    const Tensor& data = Contiguous(Only(tensors));
    return Start({type,
                  title,
                  {},
                  tensors,
                  Bind(mpi_.Irecv, data.data_ptr(), Count(data), TypeOf(data),
                       from, mpi_.CheckedTag(tag))});
  }

  // Fails peers that wait for this rank. Only the first call has an effect.
  void PublishEnd(const char* what) {
    if (std::exchange(published_, true) || getSize() == 1) return;
    try {
      group_->store->set(kMpiEndedKey,
                         absl::StrCat("rank ", group_->rank_in_job, " ", what));
    } catch (const std::exception&) {
      // The store is gone, which peers notice, too.
    }
  }

  MpiEngine& engine_;
  const MpiApi& mpi_;
  const std::shared_ptr<MpiGroup> group_;
  std::atomic<uint64_t> calls_{0};
  bool published_ = false;
};

}  // namespace

absl::StatusOr<BackendPtr> MakeMpi(const BackendRequest& request) {
  const std::string failed = ConnectingFailed("MPI", request);
  const auto explain = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(failed, status.message()));
  };
  try {
    const absl::StatusOr<MpiEngine*> engine = MpiEngine::Start(request);
    if (!engine.ok()) return explain(engine.status());
    return BackendPtr(c10::make_intrusive<MpiBackend>(
        **engine, (*engine)->NewGroup(request), request.place));
  } catch (const std::exception& error) {
    return explain(absl::UnavailableError(PlainMessage(error)));
  }
}

}  // namespace rankwise

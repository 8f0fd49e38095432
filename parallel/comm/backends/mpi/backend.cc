// c10d's collectives and messages as MPI's.
#include <climits>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/mpi/engine.h"
#include "parallel/comm/diagnosis/plain_error.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

using at::Tensor;
using c10d::OpType;
using Requests = std::vector<MPI_Request>;
using Sizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// The memory that a call uses: what `tensor` holds, in the order of memory.
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

int Int(int64_t count) {
  TORCH_CHECK(count <= INT_MAX, "one MPI call handles at most ", INT_MAX,
              " elements, got ", count, "; split the tensor");
  return static_cast<int>(count);
}

int Count(const Tensor& tensor) { return Int(tensor.numel()); }

// One tensor with the elements of all.
Tensor Joined(const Tensors& tensors) {
  Tensors flat;
  for (const Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return at::cat(flat);
}

// The opposite.
void Split(const Tensor& joined, const Tensors& tensors) {
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    tensor.copy_(joined.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
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

// How many elements go to, or come from, each rank, and where they begin.
struct Parts {
  // `sizes`: of the first dimension of `tensor`; empty: equal parts.
  Parts(const Tensor& tensor, const Sizes& sizes, int ranks) {
    const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
    TORCH_CHECK(!sizes.empty() || rows % ranks == 0, "all_to_all: ", rows,
                " rows do not split into ", ranks, " equal parts");
    const int64_t per_row = rows == 0 ? 0 : tensor.numel() / rows;
    for (int rank = 0; rank < ranks; ++rank) {
      Add((sizes.empty() ? rows / ranks : sizes.at(rank)) * per_row);
    }
    TORCH_CHECK(end == tensor.numel(),
                "all_to_all: the split sizes do not add up to ", rows);
  }
  explicit Parts(const Tensors& tensors) {
    for (const Tensor& tensor : tensors) Add(tensor.numel());
  }

  std::vector<int> counts, begins;

 private:
  void Add(int64_t count) {
    counts.push_back(Int(count));
    begins.push_back(Int(end));
    end += count;
  }
  int64_t end = 0;
};

class MpiBackend : public c10d::Backend {
 public:
  MpiBackend(MpiEngine& engine, std::shared_ptr<MpiGroup> group,
             const GroupPlace& place)
      : Backend(place.rank, place.size()),
        engine_(engine),
        mpi_(engine.mpi()),
        group_(std::move(group)) {}
  ~MpiBackend() override { Tell("has left"); }

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
    Tell("has given up");
    engine_.Fail(*group_, "given up");
  }

  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& opts) override {
    const Tensor& data = Dense(Only(tensors));
    return Run(OpType::BROADCAST, "mpi:broadcast", tensors, tensors, opts,
               [=, comm = group_->comm, root = Root(opts)](const MpiApi& mpi,
                                                           Requests& requests) {
                 mpi.Check(mpi.Ibcast(data.data_ptr(), Count(data),
                                      mpi.TypeToMove(data.scalar_type()), root,
                                      comm, &requests.emplace_back()),
                           "MPI_Ibcast");
               });
  }

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    Only(tensors);
    return AllReduce(OpType::ALLREDUCE, "mpi:all_reduce", tensors, opts);
  }
  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return AllReduce(OpType::ALLREDUCE_COALESCED, "mpi:all_reduce_coalesced",
                     tensors, opts);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    const Tensor& data = Dense(Only(tensors));
    const auto how = mpi_.ReductionOf(data.scalar_type(), opts.reduceOp);
    return Run(OpType::REDUCE, "mpi:reduce", tensors, tensors, opts,
               [=, comm = group_->comm, root = Root(opts),
                is_root = Root(opts) == getRank()](const MpiApi& mpi,
                                                   Requests& requests) {
                 void* const own = data.data_ptr();
                 mpi.Check(
                     mpi.Ireduce(is_root ? MPI_IN_PLACE : own,
                                 is_root ? own : nullptr, Count(data), how.type,
                                 how.op, root, comm, &requests.emplace_back()),
                     "MPI_Ireduce");
               });
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override {
    TORCH_CHECK(outputs.size() == 1, "all_gather takes one list of outputs");
    Tensors joined = {EmptyFor(outputs[0])};
    Tensors flat = {Only(inputs).reshape({-1})};
    return AllGather(OpType::ALLGATHER, "mpi:all_gather", joined, flat, opts,
                     outputs[0],
                     [=, to = outputs[0]] { Split(joined[0], to); });
  }
  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& opts) override {
    return AllGather(OpType::_ALLGATHER_BASE, "mpi:all_gather", {output},
                     {input}, opts, {output});
  }
  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::AllgatherOptions& opts) override {
    return AllGather(OpType::ALLGATHER_COALESCED, "mpi:all_gather_coalesced",
                     outputs, inputs, opts, outputs);
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    const bool is_root = Root(opts) == getRank();
    TORCH_CHECK(outputs.size() == (is_root ? 1 : 0),
                "gather takes one list of outputs, on the root only");
    const Tensors to = is_root ? outputs[0] : Tensors();
    const Tensor joined = is_root ? EmptyFor(to) : Tensor();
    const Tensor& own = Contiguous(Only(inputs));
    const Tensor all = is_root ? joined : own;
    return Run(
        OpType::GATHER, "mpi:gather", inputs, to, opts,
        [=, comm = group_->comm, root = Root(opts)](const MpiApi& mpi,
                                                    Requests& requests) {
          const MPI_Datatype type = mpi.TypeToMove(own.scalar_type());
          mpi.Check(mpi.Igather(own.data_ptr(), Count(own), type,
                                all.data_ptr(), Count(own), type, root, comm,
                                &requests.emplace_back()),
                    "MPI_Igather");
        },
        [=] {
          if (is_root) Split(joined, to);
        });
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    const bool is_root = Root(opts) == getRank();
    TORCH_CHECK(inputs.size() == (is_root ? 1 : 0),
                "scatter takes one list of inputs, on the root only");
    const Tensor& own = Contiguous(Only(outputs));
    const Tensor all = is_root ? Joined(inputs[0]) : own;
    return Run(OpType::SCATTER, "mpi:scatter", {all}, outputs, opts,
               [=, comm = group_->comm, root = Root(opts)](const MpiApi& mpi,
                                                           Requests& requests) {
                 const MPI_Datatype type = mpi.TypeToMove(own.scalar_type());
                 mpi.Check(mpi.Iscatter(all.data_ptr(), Count(own), type,
                                        own.data_ptr(), Count(own), type, root,
                                        comm, &requests.emplace_back()),
                           "MPI_Iscatter");
               });
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    TORCH_CHECK(inputs.size() == 1, "reduce_scatter takes one list of inputs");
    return ReduceScatter(OpType::REDUCE_SCATTER, outputs, {Joined(inputs[0])},
                         opts);
  }
  WorkPtr _reduce_scatter_base(
      Tensor& output, Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::_REDUCE_SCATTER_BASE, {output}, {input}, opts);
  }
  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::REDUCE_SCATTER, outputs, inputs, opts);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input, Sizes& output_sizes,
                        Sizes& input_sizes,
                        const c10d::AllToAllOptions& opts) override {
    return AllToAll(OpType::ALLTOALL_BASE, Contiguous(output),
                    Parts(output, output_sizes, getSize()), Contiguous(input),
                    Parts(input, input_sizes, getSize()), opts, {output});
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& opts) override {
    const Tensor joined = EmptyFor(outputs);
    return AllToAll(OpType::ALLTOALL, joined, Parts(outputs), Joined(inputs),
                    Parts(inputs), opts, outputs,
                    [=, to = outputs] { Split(joined, to); });
  }

  WorkPtr barrier(const c10d::BarrierOptions& opts) override {
    return Run(OpType::BARRIER, "mpi:barrier", {}, {}, opts,
               [comm = group_->comm](const MpiApi& mpi, Requests& requests) {
                 mpi.Check(mpi.Ibarrier(comm, &requests.emplace_back()),
                           "MPI_Ibarrier");
               });
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override {
    const Tensor& data = Contiguous(Only(tensors));
    return Start(
        {OpType::SEND,
         "mpi:send",
         tensors,
         {},
         [=, comm = group_->comm](const MpiApi& mpi, Requests& requests) {
           mpi.Check(mpi.Isend(data.data_ptr(), Count(data),
                               mpi.TypeToMove(data.scalar_type()), to, tag,
                               comm, &requests.emplace_back()),
                     "MPI_Isend");
         }});
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

  WorkPtr Start(MpiWork::Call call) {
    auto work = c10::make_intrusive<MpiWork>(engine_, group_, std::move(call));
    engine_.Submit(work);
    return work;
  }

  template <typename Options, typename Begin>
  WorkPtr Run(OpType type, const char* title, const Tensors& inputs,
              const Tensors& outputs, const Options& opts, Begin begin,
              std::function<void()> finish = {}) {
    ++calls_;
    return Start(
        {type, title, inputs, outputs, std::move(begin), std::move(finish),
         opts.timeout == c10d::kUnsetTimeout ? group_->timeout : opts.timeout});
  }

  template <typename Options>
  WorkPtr AllReduce(OpType type, const char* title, const Tensors& tensors,
                    const Options& opts) {
    std::vector<MpiApi::Reduction> how;
    for (const Tensor& tensor : tensors) {
      how.push_back(
          mpi_.ReductionOf(Dense(tensor).scalar_type(), opts.reduceOp));
    }
    return Run(type, title, tensors, tensors, opts,
               [=, comm = group_->comm](const MpiApi& mpi, Requests& requests) {
                 for (size_t i = 0; i < tensors.size(); ++i) {
                   mpi.Check(
                       mpi.Iallreduce(MPI_IN_PLACE, tensors[i].data_ptr(),
                                      Count(tensors[i]), how[i].type, how[i].op,
                                      comm, &requests.emplace_back()),
                       "MPI_Iallreduce");
                 }
               });
  }

  WorkPtr AllGather(OpType type, const char* title, const Tensors& outputs,
                    const Tensors& inputs, const c10d::AllgatherOptions& opts,
                    const Tensors& results, std::function<void()> finish = {}) {
    TORCH_CHECK(outputs.size() == inputs.size(),
                "all_gather needs an output for each input");
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(Contiguous(outputs[i]).numel() ==
                      Contiguous(inputs[i]).numel() * getSize(),
                  "all_gather: an output holds the inputs of all ranks");
    }
    return Run(
        type, title, inputs, results, opts,
        [=, comm = group_->comm, rank = getRank()](const MpiApi& mpi,
                                                   Requests& requests) {
          for (size_t i = 0; i < inputs.size(); ++i) {
            const Tensor& own = inputs[i];
            const MPI_Datatype mpi_type = mpi.TypeToMove(own.scalar_type());
            auto* const all = static_cast<char*>(outputs[i].data_ptr());
            const bool in_place = own.data_ptr() == all + rank * own.nbytes();
            mpi.Check(mpi.Iallgather(in_place ? MPI_IN_PLACE : own.data_ptr(),
                                     Count(own), mpi_type, all, Count(own),
                                     mpi_type, comm, &requests.emplace_back()),
                      "MPI_Iallgather");
          }
        },
        std::move(finish));
  }

  WorkPtr ReduceScatter(OpType type, const Tensors& outputs,
                        const Tensors& inputs,
                        const c10d::ReduceScatterOptions& opts) {
    TORCH_CHECK(outputs.size() == inputs.size(),
                "reduce_scatter needs an output for each input");
    // MPI writes no result into what other ranks may still read.
    Tensors targets = outputs;
    std::vector<MpiApi::Reduction> how;
    for (size_t i = 0; i < inputs.size(); ++i) {
      TORCH_CHECK(Contiguous(inputs[i]).numel() ==
                      Contiguous(outputs[i]).numel() * getSize(),
                  "reduce_scatter: an input holds the outputs of all ranks");
      how.push_back(mpi_.ReductionOf(inputs[i].scalar_type(), opts.reduceOp));
      if (Overlap(inputs[i], outputs[i])) targets[i] = EmptyFor({outputs[i]});
    }
    return Run(
        type, "mpi:reduce_scatter", inputs, outputs, opts,
        [=, comm = group_->comm](const MpiApi& mpi, Requests& requests) {
          for (size_t i = 0; i < inputs.size(); ++i) {
            mpi.Check(mpi.Ireduce_scatter_block(
                          inputs[i].data_ptr(), targets[i].data_ptr(),
                          Count(targets[i]), how[i].type, how[i].op, comm,
                          &requests.emplace_back()),
                      "MPI_Ireduce_scatter_block");
          }
        },
        [=] {
          for (size_t i = 0; i < outputs.size(); ++i) {
            if (!targets[i].is_same(outputs[i]))
              Split(targets[i], {outputs[i]});
          }
        });
  }

  WorkPtr AllToAll(OpType type, const Tensor& output, Parts to,
                   const Tensor& input, Parts from,
                   const c10d::AllToAllOptions& opts, const Tensors& results,
                   std::function<void()> finish = {}) {
    // MPI reads the lists until the end: `parts` lives in the call.
    const auto parts = std::make_shared<const std::pair<Parts, Parts>>(
        std::move(from), std::move(to));
    return Run(
        type, "mpi:all_to_all", {input}, results, opts,
        [=, comm = group_->comm](const MpiApi& mpi, Requests& requests) {
          const MPI_Datatype mpi_type = mpi.TypeToMove(input.scalar_type());
          mpi.Check(
              mpi.Ialltoallv(input.data_ptr(), parts->first.counts.data(),
                             parts->first.begins.data(), mpi_type,
                             output.data_ptr(), parts->second.counts.data(),
                             parts->second.begins.data(), mpi_type, comm,
                             &requests.emplace_back()),
              "MPI_Ialltoallv");
        },
        std::move(finish));
  }

  WorkPtr Receive(OpType type, const char* title, const Tensors& tensors,
                  int from, int tag) {
    const Tensor& data = Contiguous(Only(tensors));
    return Start(
        {type,
         title,
         {},
         tensors,
         [=, comm = group_->comm](const MpiApi& mpi, Requests& requests) {
           mpi.Check(mpi.Irecv(data.data_ptr(), Count(data),
                               mpi.TypeToMove(data.scalar_type()), from, tag,
                               comm, &requests.emplace_back()),
                     "MPI_Irecv");
         }});
  }

  // Peers that wait for this rank fail. Only the first word counts.
  void Tell(const char* what) {
    if (std::exchange(told_, true) || getSize() == 1) return;
    try {
      group_->store->set(kMpiEndedKey,
                         absl::StrCat("rank ", group_->rank_in_job, " ", what));
    } catch (const std::exception&) {
      // The store went first: peers find that out, too.
    }
  }

  MpiEngine& engine_;
  const MpiApi& mpi_;
  const std::shared_ptr<MpiGroup> group_;
  std::atomic<uint64_t> calls_{0};
  bool told_ = false;
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

#include "parallel/comm/backends/fake_backend.h"

#include <atomic>
#include <string>
#include <utility>

#include "c10/util/Exception.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/fake_backend_exchange.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/types.h"

namespace rankwise {
namespace {

using c10d::OpType;
using c10d::Work;
using torch::Tensor;
using Kind = FakeCall::Kind;
using Tensors = std::vector<Tensor>;
using WorkPtr = c10::intrusive_ptr<Work>;

double Bytes(const Tensors& tensors) {
  double bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

Tensors Flatten(const std::vector<Tensors>& lists) {
  Tensors all;
  for (const Tensors& list : lists)
    all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Splits `buffer` along its first dimension; keeps it whole without `sizes`.
Tensors Splits(const Tensor& buffer, const std::vector<int64_t>& sizes) {
  return sizes.empty() ? Tensors{buffer} : buffer.split_with_sizes(sizes, 0);
}

class FakeBackend : public c10d::Backend {
 public:
  FakeBackend(int rank, std::shared_ptr<FakeExchange> exchange)
      : Backend(rank, exchange->world_size()), exchange_(std::move(exchange)) {}

  const std::string getBackendName() const override { return "fake"; }
  c10::intrusive_ptr<Options> getBackendOptions() override {
    return c10::make_intrusive<Options>("fake");
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    exchange_->set_timeout(timeout);
  }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return calls_; }

  WorkPtr broadcast(Tensors& tensors,
                    const c10d::BroadcastOptions& opts) override {
    return Start(OpType::BROADCAST,
                 {"broadcast", Kind::kBroadcast, tensors, tensors, Root(opts)});
  }

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    return Start(OpType::ALLREDUCE, {"all_reduce", Kind::kReduce, tensors,
                                     tensors, kNoRoot, opts.reduceOp.op_});
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return Start(OpType::REDUCE, {"reduce", Kind::kReduce, tensors, tensors,
                                  Root(opts), opts.reduceOp.op_});
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override {
    return AllGather(OpType::ALLGATHER, inputs, Flatten(outputs), false);
  }

  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions&) override {
    return AllGather(OpType::_ALLGATHER_BASE, {input}, {output}, true);
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    return Start(OpType::GATHER, {"gather", Kind::kGather, inputs,
                                  Flatten(outputs), Root(opts)});
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    return Start(OpType::SCATTER, {"scatter", Kind::kScatter, Flatten(inputs),
                                   outputs, Root(opts)});
  }

  WorkPtr reduce_scatter(std::vector<Tensor>& outputs,
                         std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::REDUCE_SCATTER, Flatten(inputs), outputs, opts,
                         false);
  }

  WorkPtr _reduce_scatter_base(
      Tensor& output, Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::_REDUCE_SCATTER_BASE, {input}, {output}, opts,
                         true);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input,
                        std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions&) override {
    return AllToAll(OpType::ALLTOALL_BASE, Splits(input, input_sizes),
                    Splits(output, output_sizes), input_sizes.empty(),
                    output_sizes.empty());
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions&) override {
    return AllToAll(OpType::ALLTOALL, inputs, outputs, false, false);
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override {
    return Start(OpType::BARRIER, {"barrier", Kind::kBarrier});
  }

  WorkPtr send(Tensors& tensors, int target, int tag) override {
    return exchange_->Send(getRank(), OnlyTensor(tensors, target), target, tag);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return exchange_->Recv(getRank(), OnlyTensor(tensors, source), source, tag);
  }

 private:
  static constexpr int kNoRoot = -1;

  template <typename Options>
  static int Root(const Options& options) {
    return static_cast<int>(options.rootRank);
  }

  // The size of the whole buffer, as nccl-tests counts it.
  double SizeOf(const FakeCall& call) const {
    if (call.kind == Kind::kGather) return Bytes(call.inputs) * getSize();
    if (call.kind == Kind::kScatter) return Bytes(call.outputs) * getSize();
    return Bytes(call.inputs);
  }

  WorkPtr Start(OpType type, FakeCall call) {
    for (const Tensors* tensors : {&call.inputs, &call.outputs}) {
      for (const Tensor& tensor : *tensors) CheckIsCpu(tensor);
    }
    if (call.whole_inputs) CheckSplits(call.inputs);
    if (call.whole_outputs) CheckSplits(call.outputs);
    TORCH_CHECK(call.root < getSize(), call.name, ": root ", call.root,
                " is not a rank of a world of ", getSize());
    ++calls_;
    const double bytes = SizeOf(call);
    return exchange_->Collective(getRank(), type, std::move(call), bytes);
  }

  // `whole`: each output is a buffer with one part per rank.
  WorkPtr AllGather(OpType type, const Tensors& inputs, const Tensors& outputs,
                    bool whole) {
    return Start(type, {.name = "all_gather",
                        .kind = Kind::kGather,
                        .inputs = inputs,
                        .outputs = outputs,
                        .whole_outputs = whole});
  }

  WorkPtr ReduceScatter(OpType type, const Tensors& inputs,
                        const Tensors& outputs,
                        const c10d::ReduceScatterOptions& opts, bool whole) {
    return Start(type, {.name = "reduce_scatter",
                        .kind = Kind::kReduceScatter,
                        .inputs = inputs,
                        .outputs = outputs,
                        .op = opts.reduceOp.op_,
                        .whole_inputs = whole});
  }

  WorkPtr AllToAll(OpType type, const Tensors& inputs, const Tensors& outputs,
                   bool whole_inputs, bool whole_outputs) {
    const auto world_size = static_cast<size_t>(getSize());
    TORCH_CHECK((whole_inputs || inputs.size() == world_size) &&
                    (whole_outputs || outputs.size() == world_size),
                "all_to_all needs one slice per rank");
    return Start(type, {.name = "all_to_all",
                        .kind = Kind::kAllToAll,
                        .inputs = inputs,
                        .outputs = outputs,
                        .whole_inputs = whole_inputs,
                        .whole_outputs = whole_outputs});
  }

  void CheckSplits(const Tensors& buffers) const {
    for (const Tensor& buffer : buffers) {
      TORCH_CHECK(buffer.is_contiguous() && buffer.numel() % getSize() == 0,
                  "a buffer of ", buffer.numel(),
                  " elements does not split into ", getSize(),
                  " equal contiguous parts");
    }
  }

  const Tensor& OnlyTensor(const Tensors& tensors, int peer) const {
    TORCH_CHECK(tensors.size() == 1, "send and recv take one tensor");
    TORCH_CHECK(peer >= 0 && peer < getSize() && peer != getRank(), "rank ",
                getRank(), " cannot exchange messages with rank ", peer,
                " in a world of ", getSize());
    CheckIsCpu(tensors[0]);
    return tensors[0];
  }

  static void CheckIsCpu(const Tensor& tensor) {
    TORCH_CHECK(tensor.is_cpu(),
                "the fake backend carries CPU tensors only, not ",
                tensor.device());
  }

  const std::shared_ptr<FakeExchange> exchange_;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace

FakeBackendConfig FakeCostsOf(const FakeBackendConfig& config,
                              const std::vector<int>& ranks) {
  FakeBackendConfig of_group = config;
  of_group.skew_us.clear();
  of_group.straggler_rank = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t rank = static_cast<size_t>(ranks[i]);
    const bool skewed = rank < config.skew_us.size();
    of_group.skew_us.push_back(skewed ? config.skew_us[rank] : 0);
    if (ranks[i] == config.straggler_rank)
      of_group.straggler_rank = static_cast<int>(i);
  }
  return of_group;
}

double FakeLatenessSeconds(const FakeBackendConfig& config, int rank) {
  const bool skewed = static_cast<size_t>(rank) < config.skew_us.size();
  const double skew_us = skewed ? config.skew_us[rank] : 0;
  const bool straggles = rank == config.straggler_rank;
  return (skew_us + (straggles ? config.straggler_us : 0)) * 1e-6;
}

double FakeCostSeconds(const FakeBackendConfig& config, double bytes) {
  return config.alpha_us * 1e-6 + config.beta_ns_per_byte * 1e-9 * bytes;
}

double FakeTailSeconds(const FakeBackendConfig& config, uint64_t number) {
  const bool slow = config.tail_every > 0 && number % config.tail_every == 0;
  return slow ? config.tail_us * 1e-6 : 0;
}

c10::intrusive_ptr<c10d::Backend> MakeFakeBackend(
    int rank, int world_size, const FakeBackendConfig& config) {
  TORCH_CHECK(rank >= 0 && rank < world_size, "rank ", rank,
              " is not in a world of ", world_size);
  return c10::make_intrusive<FakeBackend>(
      rank, std::make_shared<FakeExchange>(world_size, config, rank));
}

absl::StatusOr<BackendPtr> MakeFake(const BackendRequest& request) {
  return MakeFakeBackend(request.place.rank, request.place.size(),
                         FakeCostsOf(request.fake, request.place.ranks));
}

c10::intrusive_ptr<c10d::ProcessGroup> MakeFakeProcessGroup(
    const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(),
                                                       backend->getSize());
  group->setBackend(c10::DeviceType::CPU,
                    c10d::ProcessGroup::BackendType::CUSTOM, backend);
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

FakeWorld::FakeWorld(int world_size, const FakeBackendConfig& config)
    : exchange_(std::make_shared<FakeExchange>(world_size, config, -1)) {}

FakeWorld::~FakeWorld() = default;

c10::intrusive_ptr<c10d::Backend> FakeWorld::backend(int rank) const {
  TORCH_CHECK(rank >= 0 && rank < exchange_->world_size(), "rank ", rank,
              " is not in a world of ", exchange_->world_size());
  return c10::make_intrusive<FakeBackend>(rank, exchange_);
}

}  // namespace rankwise

#include "parallel/comm/backends/fake_backend.h"

#include <atomic>
#include <string>
#include <utility>

#include "c10/util/Exception.h"
#include "parallel/comm/backends/backends.h"
#include "parallel/comm/backends/fake_backend_data.h"
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

// `buffer` as one slice per rank.
Tensors Slices(const Tensor& buffer, int world_size) {
  TORCH_CHECK(buffer.is_contiguous() && buffer.numel() % world_size == 0,
              "a buffer of ", buffer.numel(), " elements does not split into ",
              world_size, " equal contiguous parts");
  return buffer.view({world_size, -1}).unbind(0);
}

// `buffer` in parts along its first dimension; equal parts without `sizes`.
Tensors Splits(const Tensor& buffer, const std::vector<int64_t>& sizes,
               int world_size) {
  return sizes.empty() ? Slices(buffer, world_size)
                       : buffer.split_with_sizes(sizes, 0);
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
    return Start(OpType::BROADCAST, {.name = "broadcast",
                                     .kind = Kind::kBroadcast,
                                     .root = static_cast<int>(opts.rootRank),
                                     .inputs = tensors,
                                     .outputs = tensors});
  }

  WorkPtr allreduce(Tensors& tensors,
                    const c10d::AllreduceOptions& opts) override {
    return Start(OpType::ALLREDUCE, {.name = "all_reduce",
                                     .kind = Kind::kReduce,
                                     .op = opts.reduceOp.op_,
                                     .inputs = tensors,
                                     .outputs = tensors});
  }

  WorkPtr allreduce_coalesced(
      Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override {
    return allreduce(tensors, opts);
  }

  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override {
    return Start(OpType::REDUCE, {.name = "reduce",
                                  .kind = Kind::kReduce,
                                  .root = static_cast<int>(opts.rootRank),
                                  .op = opts.reduceOp.op_,
                                  .inputs = tensors,
                                  .outputs = tensors});
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override {
    return AllGather(OpType::ALLGATHER, inputs, Flatten(outputs));
  }

  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions&) override {
    return AllGather(OpType::_ALLGATHER_BASE, {input},
                     Slices(output, getSize()));
  }

  WorkPtr allgather_into_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::AllgatherOptions&) override {
    Tensors slices;
    for (const Tensor& output : outputs) {
      for (Tensor& slice : Slices(output, getSize())) slices.push_back(slice);
    }
    return AllGather(OpType::ALLGATHER_COALESCED, inputs, std::move(slices));
  }

  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& opts) override {
    FakeCall call{.name = "gather",
                  .kind = Kind::kGather,
                  .root = static_cast<int>(opts.rootRank),
                  .inputs = inputs,
                  .outputs = Flatten(outputs)};
    return Start(OpType::GATHER, std::move(call), Bytes(inputs) * getSize());
  }

  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& opts) override {
    FakeCall call{.name = "scatter",
                  .kind = Kind::kScatter,
                  .root = static_cast<int>(opts.rootRank),
                  .inputs = Flatten(inputs),
                  .outputs = outputs};
    return Start(OpType::SCATTER, std::move(call), Bytes(outputs) * getSize());
  }

  WorkPtr reduce_scatter(std::vector<Tensor>& outputs,
                         std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::REDUCE_SCATTER, Flatten(inputs), outputs,
                         opts);
  }

  WorkPtr _reduce_scatter_base(
      Tensor& output, Tensor& input,
      const c10d::ReduceScatterOptions& opts) override {
    return ReduceScatter(OpType::_REDUCE_SCATTER_BASE, Slices(input, getSize()),
                         {output}, opts);
  }

  WorkPtr reduce_scatter_tensor_coalesced(
      Tensors& outputs, Tensors& inputs,
      const c10d::ReduceScatterOptions& opts) override {
    Tensors slices;
    for (const Tensor& input : inputs) {
      for (Tensor& slice : Slices(input, getSize())) slices.push_back(slice);
    }
    return ReduceScatter(OpType::REDUCE_SCATTER, std::move(slices), outputs,
                         opts);
  }

  WorkPtr alltoall_base(Tensor& output, Tensor& input,
                        std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions&) override {
    return AllToAll(OpType::ALLTOALL_BASE,
                    Splits(input, input_sizes, getSize()),
                    Splits(output, output_sizes, getSize()));
  }

  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions&) override {
    return AllToAll(OpType::ALLTOALL, inputs, outputs);
  }

  WorkPtr barrier(const c10d::BarrierOptions&) override {
    return Start(OpType::BARRIER, {.name = "barrier"});
  }

  WorkPtr send(Tensors& tensors, int target, int tag) override {
    return exchange_->Send(getRank(), OnlyTensor(tensors, target), target, tag);
  }

  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return exchange_->Recv(getRank(), OnlyTensor(tensors, source), source, tag);
  }

 private:
  WorkPtr Start(OpType type, FakeCall call) {
    const double bytes = Bytes(call.inputs);
    return Start(type, std::move(call), bytes);
  }

  WorkPtr Start(OpType type, FakeCall call, double bytes) {
    for (const Tensors* tensors : {&call.inputs, &call.outputs}) {
      for (const Tensor& tensor : *tensors) CheckIsCpu(tensor);
    }
    TORCH_CHECK(call.root < getSize(), call.name, ": root ", call.root,
                " is not a rank of a world of ", getSize());
    ++calls_;
    return exchange_->Collective(getRank(), type, std::move(call), bytes);
  }

  WorkPtr AllGather(OpType type, const Tensors& inputs, Tensors outputs) {
    FakeCall call{.name = "all_gather",
                  .kind = Kind::kGather,
                  .inputs = inputs,
                  .outputs = std::move(outputs)};
    return Start(type, std::move(call), Bytes(inputs) * getSize());
  }

  WorkPtr ReduceScatter(OpType type, Tensors inputs, const Tensors& outputs,
                        const c10d::ReduceScatterOptions& opts) {
    return Start(type, {.name = "reduce_scatter",
                        .kind = Kind::kReduceScatter,
                        .op = opts.reduceOp.op_,
                        .inputs = std::move(inputs),
                        .outputs = outputs});
  }

  WorkPtr AllToAll(OpType type, Tensors inputs, Tensors outputs) {
    TORCH_CHECK(inputs.size() == static_cast<size_t>(getSize()) &&
                    outputs.size() == inputs.size(),
                "all_to_all needs one slice per rank");
    return Start(type, {.name = "all_to_all",
                        .kind = Kind::kAllToAll,
                        .inputs = std::move(inputs),
                        .outputs = std::move(outputs)});
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

// The costs as a group sees them, whose ranks are numbered anew.
absl::StatusOr<BackendPtr> MakeFake(const BackendRequest& request) {
  const std::vector<int>& ranks = request.place.ranks;
  FakeBackendConfig config = request.fake;
  config.skew_us.clear();
  config.straggler_rank = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const size_t rank = static_cast<size_t>(ranks[i]);
    const bool skewed = rank < request.fake.skew_us.size();
    config.skew_us.push_back(skewed ? request.fake.skew_us[rank] : 0);
    if (ranks[i] == request.fake.straggler_rank) {
      config.straggler_rank = static_cast<int>(i);
    }
  }
  return MakeFakeBackend(request.place.rank, request.place.size(), config);
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
    : world_size_(world_size),
      exchange_(std::make_shared<FakeExchange>(world_size, config, -1)) {}

FakeWorld::~FakeWorld() = default;

c10::intrusive_ptr<c10d::Backend> FakeWorld::backend(int rank) const {
  TORCH_CHECK(rank >= 0 && rank < world_size_, "rank ", rank,
              " is not in a world of ", world_size_);
  return c10::make_intrusive<FakeBackend>(rank, exchange_);
}

}  // namespace rankwise

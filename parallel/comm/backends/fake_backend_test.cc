#include "parallel/comm/backends/fake_backend.h"

#include <chrono>

#include "ATen/Functions.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/types.h"

namespace rankwise {
namespace {

using c10d::ReduceOp;
using std::chrono::duration;
using std::chrono::steady_clock;
using torch::Tensor;
using Tensors = std::vector<Tensor>;

Tensor Values(const std::vector<float>& values) {
  return torch::tensor(at::ArrayRef<float>(values));
}

c10::intrusive_ptr<c10d::ProcessGroup> Group(
    int rank, int world_size, const FakeBackendConfig& config = {}) {
  return MakeFakeProcessGroup(MakeFakeBackend(rank, world_size, config));
}

Tensor AllReduced(Tensor tensor, int world_size, ReduceOp::RedOpType op) {
  Tensors tensors{tensor.clone()};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  Group(0, world_size)->allreduce(tensors, options)->wait();
  return tensors[0];
}

double SecondsOf(const std::function<void()>& action) {
  const auto start = steady_clock::now();
  action();
  return duration<double>(steady_clock::now() - start).count();
}

TEST(FakeBackendTest, ReducesAsIfAllRanksHeldTheSameFloats) {
  const Tensor x = Values({-2, 0.5, 3});
  EXPECT_TRUE(AllReduced(x, 3, ReduceOp::SUM).equal(Values({-6, 1.5, 9})));
  EXPECT_TRUE(
      AllReduced(x, 3, ReduceOp::PRODUCT).equal(Values({-8, 0.125, 27})));
  for (auto op : {ReduceOp::AVG, ReduceOp::MIN, ReduceOp::MAX}) {
    EXPECT_TRUE(AllReduced(x, 3, op).equal(x));
  }
}

TEST(FakeBackendTest, ReducesAsIfAllRanksHeldTheSameBits) {
  const Tensor x = torch::tensor({5, 0, -1}, torch::kLong);
  EXPECT_TRUE(AllReduced(x, 4, ReduceOp::BAND).equal(x));
  EXPECT_TRUE(AllReduced(x, 4, ReduceOp::BOR).equal(x));
  EXPECT_TRUE(AllReduced(x, 3, ReduceOp::BXOR).equal(x));
  EXPECT_TRUE(AllReduced(x, 4, ReduceOp::BXOR).equal(at::zeros_like(x)));
  EXPECT_TRUE(AllReduced(x, 4, ReduceOp::SUM).equal(x * 4));
}

TEST(FakeBackendTest, KeepsTheDtypeOfHalfFloats) {
  const Tensor x = Values({1, 2}).to(torch::kBFloat16);
  const Tensor sum = AllReduced(x, 8, ReduceOp::SUM);
  EXPECT_EQ(sum.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(sum.equal(x * 8));
}

TEST(FakeBackendTest, ReduceChangesTheRootOnly) {
  c10d::ReduceOptions options;
  options.rootRank = 1;
  for (int rank : {0, 1}) {
    Tensors x{Values({2})};
    Group(rank, 2)->reduce(x, options)->wait();
    EXPECT_EQ(x[0].item<float>(), rank == 1 ? 4 : 2);
  }
}

TEST(FakeBackendTest, BroadcastLeavesTheTensorWhoeverTheRootIs) {
  for (int root : {0, 1, 2}) {
    Tensors x{Values({1, 2})};
    c10d::BroadcastOptions options;
    options.rootRank = root;
    Group(1, 3)->broadcast(x, options)->wait();
    EXPECT_TRUE(x[0].equal(Values({1, 2})));
  }
}

TEST(FakeBackendTest, AllGatherReplicates) {
  auto group = Group(1, 3);
  Tensors input{Values({1, 2})};
  std::vector<Tensors> outputs{{at::zeros(2), at::zeros(2), at::zeros(2)}};
  group->allgather(outputs, input)->wait();
  for (const Tensor& output : outputs[0]) EXPECT_TRUE(output.equal(input[0]));

  Tensor flat = at::zeros(6);
  group->_allgather_base(flat, input[0])->wait();
  EXPECT_TRUE(flat.equal(input[0].repeat(3)));
}

TEST(FakeBackendTest, GatherFillsTheRootOnly) {
  c10d::GatherOptions options;
  options.rootRank = 1;
  Tensors input{Values({7})};
  std::vector<Tensors> outputs{{at::zeros(1), at::zeros(1)}};
  Group(1, 2)->gather(outputs, input, options)->wait();
  EXPECT_EQ(outputs[0][0].item<float>(), 7);
  EXPECT_EQ(outputs[0][1].item<float>(), 7);
  std::vector<Tensors> none;
  Group(0, 2)->gather(none, input, options)->wait();
}

TEST(FakeBackendTest, ReduceScatterGivesThisRanksSliceReduced) {
  Tensor input = Values({1, 2, 3, 4, 5, 6});
  Tensor output = at::zeros(2);
  Group(2, 3)->_reduce_scatter_base(output, input)->wait();
  EXPECT_TRUE(output.equal(Values({15, 18})));

  Tensors outputs{at::zeros(1)};
  std::vector<Tensors> inputs{{Values({1}), Values({2})}};
  c10d::ReduceScatterOptions average;
  average.reduceOp = ReduceOp::AVG;
  Group(1, 2)->reduce_scatter(outputs, inputs, average)->wait();
  EXPECT_EQ(outputs[0].item<float>(), 2);
}

TEST(FakeBackendTest, ScatterGivesThisRanksSliceOnTheRootOnly) {
  Tensors output{Values({9})};
  std::vector<Tensors> slices{{Values({1}), Values({2})}};
  c10d::ScatterOptions options;
  options.rootRank = 1;
  Group(1, 2)->scatter(output, slices, options)->wait();
  EXPECT_EQ(output[0].item<float>(), 2);
  std::vector<Tensors> none;
  Group(0, 2)->scatter(output, none, options)->wait();
  EXPECT_EQ(output[0].item<float>(), 2) << "left as it was";
}

TEST(FakeBackendTest, AllToAllReplicatesThisRanksSlice) {
  Tensor input = Values({1, 2, 3, 4});
  Tensor output = at::zeros(4);
  std::vector<int64_t> equal;
  Group(1, 2)->alltoall_base(output, input, equal, equal)->wait();
  EXPECT_TRUE(output.equal(Values({3, 4, 3, 4})));

  std::vector<int64_t> in_sizes{1, 3}, out_sizes{2, 2};
  Group(1, 2)->alltoall_base(output, input, out_sizes, in_sizes)->wait();
  EXPECT_TRUE(output.equal(Values({2, 3, 2, 3})));
}

TEST(FakeBackendTest, RecvTakesTheLastMessageSentUnderItsTag) {
  auto group = Group(0, 2);
  Tensors sent{Values({1, 2})}, received{at::zeros(2)}, other{Values({8})};
  group->recv(received, 1, 5)->wait();
  EXPECT_TRUE(received[0].equal(at::zeros(2))) << "nothing was sent yet";
  group->send(sent, 1, 5)->wait();
  group->recv(received, 1, 5)->wait();
  EXPECT_TRUE(received[0].equal(sent[0]));
  group->recv(other, 1, 5)->wait();
  EXPECT_EQ(other[0].item<float>(), 8) << "another size";
}

TEST(FakeBackendTest, RefusesWhatItCannotDo) {
  EXPECT_THROW(MakeFakeBackend(2, 2, {}), c10::Error);
  Tensors x{Values({1})};
  EXPECT_THROW(Group(0, 2)->send(x, 0, 0), c10::Error);
  EXPECT_THROW(Group(0, 2)->recv(x, 2, 0), c10::Error);
  c10d::BroadcastOptions options;
  options.rootRank = 2;
  EXPECT_THROW(Group(0, 2)->broadcast(x, options), c10::Error);
  Tensor output = at::zeros(2), odd = at::zeros(3);
  EXPECT_THROW(Group(0, 2)->_reduce_scatter_base(output, odd), c10::Error);
}

TEST(FakeBackendTest, ErrorsOnTheWorkerReachTheWaiter) {
  Tensor output = at::zeros(3), input = at::zeros(4);
  auto work = Group(0, 2)->_reduce_scatter_base(output, input);
  EXPECT_THROW(work->wait(), c10::Error);
  EXPECT_FALSE(work->isSuccess());
  EXPECT_TRUE(work->getFuture()->hasError());
}

TEST(FakeBackendTest, CostIsAlphaPlusBetaTimesBytes) {
  const FakeBackendConfig config{.alpha_us = 2000, .beta_ns_per_byte = 1000};
  EXPECT_DOUBLE_EQ(FakeCostSeconds(config, 4000), 0.006);
  auto group = Group(0, 2, config);
  Tensors x{at::zeros(1000)};
  EXPECT_GE(SecondsOf([&] { group->allreduce(x)->wait(); }), 0.006);
  EXPECT_GE(SecondsOf([&] { group->barrier()->wait(); }), 0.002);
  Tensor gathered = at::zeros(2000);
  EXPECT_GE(SecondsOf([&] { group->_allgather_base(gathered, x[0])->wait(); }),
            0.010);
  EXPECT_GE(SecondsOf([&] { group->send(x, 1, 0)->wait(); }), 0.006);
}

TEST(FakeBackendTest, EveryRankWaitsForTheLatest) {
  const FakeBackendConfig config{
      .skew_us = {0, 1000, 0}, .straggler_rank = 2, .straggler_us = 8000};
  EXPECT_DOUBLE_EQ(FakeLatenessSeconds(config, 0), 0);
  EXPECT_DOUBLE_EQ(FakeLatenessSeconds(config, 1), 0.001);
  EXPECT_DOUBLE_EQ(FakeLatenessSeconds(config, 2), 0.008);
  EXPECT_DOUBLE_EQ(FakeLatenessSeconds(config, 3), 0);
  for (int rank = 0; rank < 3; ++rank) {
    auto group = Group(rank, 3, config);
    Tensors x{at::zeros(1)};
    EXPECT_GE(SecondsOf([&] { group->allreduce(x)->wait(); }), 0.008);
  }
}

TEST(FakeBackendTest, CallsReturnAtOnceAndQueueUp) {
  auto group = Group(0, 2, {.alpha_us = 30000});
  Tensors x{at::ones(1)}, y{at::ones(1)};
  const auto start = steady_clock::now();
  auto first = group->allreduce(x);
  auto second = group->allreduce(y);
  EXPECT_FALSE(first->isCompleted());
  EXPECT_FALSE(second->isCompleted());
  second->wait();
  EXPECT_TRUE(first->isCompleted()) << "collectives follow each other";
  EXPECT_GE(steady_clock::now() - start, std::chrono::milliseconds(60));
  EXPECT_EQ(x[0].item<float>(), 2);
}

TEST(FakeBackendTest, EveryKthCollectiveHasATail) {
  const FakeBackendConfig config = {.tail_every = 3, .tail_us = 20000};
  for (uint64_t number : {1, 2, 4, 5}) {
    EXPECT_EQ(FakeTailSeconds(config, number), 0);
  }
  EXPECT_DOUBLE_EQ(FakeTailSeconds(config, 3), 0.02);
  EXPECT_DOUBLE_EQ(FakeTailSeconds(config, 6), 0.02);
  EXPECT_EQ(FakeTailSeconds({}, 3), 0);

  auto group = Group(0, 2, config);
  auto call = [&] { group->barrier()->wait(); };
  call();
  call();
  EXPECT_GE(SecondsOf(call), 0.02);
}

TEST(FakeBackendTest, FuturesHoldTheTensorsAndRunCallbacks) {
  auto group = Group(0, 2, {.alpha_us = 1000});
  Tensors x{at::ones(1)};
  auto future = group->allreduce(x)->getFuture();
  auto doubled = future->then(
      [](c10::ivalue::Future& done) -> c10::IValue {
        return done.value().toTensorVector()[0] * 2;
      },
      c10::TensorType::get());
  doubled->wait();
  EXPECT_EQ(doubled->value().toTensor().item<float>(), 4);
}

TEST(FakeBackendTest, ScalesToThousandsOfRanks) {
  EXPECT_TRUE(AllReduced(Values({1, 2}), 4096, ReduceOp::SUM)
                  .equal(Values({4096, 8192})));
}

TEST(FakeBackendTest, NamesItself) {
  auto backend = MakeFakeBackend(1, 2, {});
  EXPECT_EQ(backend->getBackendName(), "fake");
  Tensors x{Values({1})};
  backend->allreduce(x, c10d::AllreduceOptions())->wait();
  EXPECT_EQ(backend->getSequenceNumberForGroup(), 1);
}

}  // namespace
}  // namespace rankwise

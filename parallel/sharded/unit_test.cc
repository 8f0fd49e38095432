#include "parallel/sharded/unit.h"

#include "ATen/Functions.h"
#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "gtest/gtest.h"
#include "parallel/device/fake_device_for_test.h"
#include "parallel/sharded/fully_sharded.h"
#include "torch/csrc/autograd/function.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/nn/module.h"

namespace rankwise {
namespace {

const c10::Device kDevice = FakeDevice::At(1);  // not the current device

c10::Stream NewStream() {
  return c10::impl::VirtualGuardImpl(kDevice.type())
      .getStreamFromGlobalPool(kDevice);
}

// A single rank, for which exchanges are copies.
class UnitOnStreamsTest : public testing::Test {
 protected:
  UnitOnStreamsTest() {
    FakeDevice::Reset();
    FakeDevice::WhenHostWaits([] { FakeDevice::RunAll(kDevice, 1); });
  }

  // The weight is [2, 3].
  ShardedUnit MakeUnit(const ShardingConfig& config) {
    config_ = config;
    weight_ = at::ones({2, 3}).to(kDevice).requires_grad_();
    return ShardedUnit("unit", {{"weight", weight_}}, groups_, config_,
                       unsharded_);
  }

  const ShardingGroups groups_;
  ShardingConfig config_;
  UnshardedBytes unsharded_;
  torch::Tensor weight_;
  const c10::Stream starts_ = NewStream(), finishes_ = NewStream();
};

TEST_F(UnitOnStreamsTest,
       AGatherThatAnotherStageStartedIsWaitedForAndItsBufferKept) {
  ShardedUnit unit = MakeUnit({});
  FakeDevice::RunAll(kDevice, 1);
  {
    const c10::StreamGuard guard(starts_);
    unit.StartGather();
  }
  const size_t before = FakeDevice::recorded().size();
  {
    const c10::StreamGuard guard(finishes_);
    unit.FinishGather();
  }
  EXPECT_FALSE(FakeDevice::Idle(finishes_));
  FakeDevice::Run(starts_, 2);
  FakeDevice::Run(finishes_, 3);
  EXPECT_TRUE(FakeDevice::Idle(finishes_));
  const std::vector<c10::Stream> recorded = FakeDevice::recorded();
  ASSERT_GT(recorded.size(), before);
  for (size_t i = before; i < recorded.size(); ++i)
    EXPECT_EQ(recorded[i], finishes_);
}

TEST_F(UnitOnStreamsTest,
       AReductionThatAnotherStageStartedIsWaitedForAndItsBufferKept) {
  ShardedUnit unit = MakeUnit({.stage = 2});
  weight_.mutable_grad() = at::ones({2, 3}).to(kDevice);
  FakeDevice::RunAll(kDevice, 1);
  {
    const c10::StreamGuard guard(starts_);
    unit.StartReduce();
  }
  // The division by the number of ranks runs on the host.
  FakeDevice::WhenHostWaits([this] {
    EXPECT_FALSE(FakeDevice::Idle(finishes_));
    FakeDevice::Run(starts_, 2);
    FakeDevice::Run(finishes_, 3);
  });
  {
    const c10::StreamGuard guard(finishes_);
    unit.FinishReduce();
  }
  EXPECT_TRUE(FakeDevice::Idle(starts_));
  const std::vector<c10::Stream> recorded = FakeDevice::recorded();
  ASSERT_FALSE(recorded.empty());
  EXPECT_EQ(recorded.back(), finishes_);
}

// A pipeline runs each stage's sections on the stage's own stream.
TEST_F(UnitOnStreamsTest, GradientsAddUpOnTheStreamThatRunsTheSection) {
  torch::nn::Module net;
  const torch::Tensor weight =
      net.register_parameter("weight", at::ones({2, 3}).to(kDevice));
  const auto engine = FullyShardedDataParallel::Create(
      net, {{"weight", {weight}}}, groups_.shard, groups_, {.stage = 2});
  ASSERT_TRUE(engine.ok()) << engine.status();
  (*engine)->AddSection({weight});
  {
    const c10::StreamGuard guard(starts_);
    (*engine)->Run(
        0, [](const torch::Tensor& x) { return x; }, at::ones({1}));
  }
  EXPECT_EQ(torch::autograd::impl::grad_accumulator(weight)
                ->input_metadata(0)
                .stream(),
            starts_);
}

TEST_F(UnitOnStreamsTest, ParametersAreAllocatedOnTheirDevice) {
  ShardedUnit unit = MakeUnit({});
  unit.StartGather();
  unit.FinishGather();
  EXPECT_EQ(weight_.storage().device(), kDevice);
}

// As with --offload_optimizer and --reduce_every_microbatch.
TEST_F(UnitOnStreamsTest, GradientsOfOffloadedRowsAddUpOnTheHost) {
  ShardedUnit unit = MakeUnit({.stage = 2, .offload = true});
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    weight_.mutable_grad() = at::ones({2, 3}).to(kDevice);
    unit.StartReduce();
    unit.FinishReduce();
  }
  const torch::Tensor gradient = unit.parameters()[0].rows.grad();
  EXPECT_TRUE(gradient.is_cpu());
  EXPECT_TRUE(gradient.equal(at::full({2, 3}, 2.0)));
}

}  // namespace
}  // namespace rankwise

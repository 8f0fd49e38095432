// Layout of tensors between stages, and the operations given to a GPU and their
// order, on a fake device that runs only on request.
#include "parallel/pipeline/engine/transport.h"

#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "c10/core/StreamGuard.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/device/device_event.h"
#include "parallel/device/fake_device_for_test.h"
#include "parallel/pipeline/engine/stage_streams.h"
#include "parallel/pipeline/engine/test_pipeline.h"

namespace rankwise {
namespace {

using testing::ElementsAre;

TEST(WireFormatTest, ImagesTravelChannelsLast) {
  const at::Tensor image =
      at::arange(120, at::kFloat).view({2, 3, 4, 5}).requires_grad_();
  const at::Tensor wire = ToWire(image);
  EXPECT_TRUE(wire.is_contiguous());
  EXPECT_FALSE(wire.requires_grad());
  EXPECT_EQ(wire.sizes(), WireShape({2, 3, 4, 5}));
  const at::Tensor received = FromWire(wire.clone());
  EXPECT_TRUE(at::equal(received, image));
  EXPECT_TRUE(received.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(WireFormatTest, WhatIsChannelsLastAlreadyIsNotCopied) {
  const at::Tensor image =
      at::zeros({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(ToWire(image).data_ptr(), image.data_ptr());
  const at::Tensor rows = at::zeros({2, 3});
  EXPECT_EQ(ToWire(rows).data_ptr(), rows.data_ptr());
}

TEST(WireFormatTest, OthersTravelRowByRowInTheTypeTheyHave) {
  for (at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor rows = at::arange(6, type).view({2, 3}).t();
    const at::Tensor wire = ToWire(rows);
    EXPECT_TRUE(wire.is_contiguous());
    EXPECT_EQ(wire.scalar_type(), type);
    EXPECT_THAT(WireShape({3, 2}), ElementsAre(3, 2));
    EXPECT_TRUE(at::equal(FromWire(wire), rows));
  }
}

TEST(WireBuffersTest, ABufferIsUsedAgainOnceNothingSharesIt) {
  WireBuffers buffers(at::kCPU);
  at::Tensor first = buffers.Take({2, 3, 4, 5});
  const void* const bytes = first.data_ptr();
  at::Tensor view = FromWire(first);
  first.reset();
  EXPECT_NE(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);  // the view's
  at::Tensor leaf = view.detach().requires_grad_();
  view.reset();
  at::Tensor result = at::sin(leaf);
  leaf.reset();
  EXPECT_NE(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);  // its graph's
  EXPECT_EQ(buffers.count(), 2);
  result.reset();
  EXPECT_EQ(buffers.Take({2, 3, 4, 5}).data_ptr(), bytes);
  EXPECT_EQ(buffers.count(), 2);
}

TEST(WireBuffersTest, ShapesAndTypesAreKeptApart) {
  WireBuffers buffers(at::kCPU);
  buffers.Take({2, 3});
  EXPECT_THAT(buffers.Take({3, 2}).sizes().vec(), ElementsAre(3, 2));
  EXPECT_EQ(buffers.Take({2, 3}, at::kBFloat16).scalar_type(), at::kBFloat16);
  EXPECT_EQ(buffers.count(), 3);
}

TEST(WireBuffersTest, FilledOnesHoldSmallNumbersThatDiffer) {
  WireBuffers buffers(at::kCPU, /*filled=*/true);
  const at::Tensor buffer = buffers.Take({7, 5});
  EXPECT_LE(buffer.abs().max().item<float>(), 1e-3);
  EXPECT_GT(buffer.std().item<float>(), 1e-4);
  // No value leaves a processor's fast path.
  const at::Tensor others = buffer.flatten().slice(0, 1);
  EXPECT_GT(others.abs().min().item<float>(), 1e-20);
}

at::Tensor WithGradient(at::Tensor gradient) {
  at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
  parameter.mutable_grad() = gradient;
  return parameter;
}

TEST(SharedGradientTest, BothEndWithTheSameSum) {
  at::Tensor results[2];
  OnRanks(2, [&](const Group& group, int rank) {
    const at::Tensor weight =
        WithGradient(at::full({4, 5}, rank == 0 ? 0.1 : 0.7));
    SumSharedGradient(group, 1 - rank, /*tag=*/9, weight);
    results[rank] = weight.grad();
  });
  EXPECT_TRUE(results[0].equal(results[1]));
  EXPECT_NEAR(results[0][0][0].item<double>(), 0.8, 1e-6);
}

TEST(SharedGradientTest, AStageThatDidNotUseTheWeightAddsZeros) {
  OnRanks(2, [](const Group& group, int rank) {
    const at::Tensor weight = rank == 0 ? WithGradient(at::full({4, 5}, 3.))
                                        : at::zeros({4, 5}).requires_grad_();
    SumSharedGradient(group, 1 - rank, /*tag=*/9, weight);
    EXPECT_TRUE(weight.grad().equal(at::full({4, 5}, 3.)));
  });
}

// Holds parameters and computes nothing.
class Holder : public Stage {
 public:
  explicit Holder(std::vector<at::Tensor> parameters)
      : parameters_(std::move(parameters)) {}
  at::Tensor Forward(int, const at::Tensor& input) override { return input; }
  std::vector<int64_t> InputShape(int) const override { return {}; }
  std::vector<int64_t> OutputShape(int) const override { return {}; }
  std::vector<at::Tensor> Parameters() const override { return parameters_; }

 private:
  std::vector<at::Tensor> parameters_;
};

class StageStreamsTest : public testing::Test {
 protected:
  void SetUp() override { FakeDevice::Reset(); }
};

TEST_F(StageStreamsTest, StagesThatShareAWeightShareTheirStreams) {
  const at::Tensor tied = at::zeros({1}), other = at::zeros({1});
  Holder first({tied}), middle({other}), last({tied});
  const StageStreams streams(
      {&first, &middle, &last},
      {FakeDevice::At(0), FakeDevice::At(0), FakeDevice::At(1)});
  EXPECT_EQ(streams.Of(0), streams.Of(2));
  EXPECT_EQ(streams.Of(0).size(), 2u);  // one on each device
  EXPECT_EQ(streams.Of(1).size(), 1u);
  EXPECT_NE(streams.HomeOf(0), streams.HomeOf(1));
  EXPECT_EQ(streams.HomeOf(0).device(), FakeDevice::At(0));
  EXPECT_EQ(streams.HomeOf(2).device(), FakeDevice::At(1));
}

TEST_F(StageStreamsTest, CpusHaveNone) {
  Holder stage({});
  const StageStreams streams({&stage, nullptr}, {at::kCPU, at::kCPU});
  streams.Begin();
  streams.End();
  EXPECT_TRUE(streams.Of(0).empty());
  EXPECT_TRUE(streams.Arrivals(at::kCPU).empty());
  EXPECT_TRUE(streams.HomeOf(0).device().is_cpu());
}

TEST_F(StageStreamsTest, AStepComesAfterWhatWasGivenAndBeforeWhatIs) {
  Holder a({}), b({});
  const StageStreams streams({&a, &b}, {FakeDevice::At(0), FakeDevice::At(1)});
  const DeviceEvent before(FakeDevice::At(0));
  streams.Begin();
  const DeviceEvent in_a(streams.HomeOf(0)), in_b(streams.HomeOf(1));
  streams.End();
  const DeviceEvent after(FakeDevice::At(1));
  FakeDevice::RunAll(FakeDevice::At(1), 1);
  EXPECT_FALSE(in_b.reached()) << "before the other device's earlier work";
  FakeDevice::RunAll(FakeDevice::At(0), 2);
  EXPECT_TRUE(in_a.reached());
  EXPECT_FALSE(after.reached());
  FakeDevice::RunAll(FakeDevice::At(1), 3);
  EXPECT_TRUE(in_b.reached());
  EXPECT_TRUE(after.reached());
  EXPECT_EQ(FakeDevice::waits(), 0);
}

at::Tensor EmptyOn(int device) {
  return at::empty(
      {4}, at::TensorOptions(at::kFloat).device(FakeDevice::At(device)));
}

TEST_F(StageStreamsTest, ACopyWaitsForItsMakerAndItsUserForTheCopy) {
  Holder a({}), b({});
  const std::vector<c10::Device> devices = {FakeDevice::At(0),
                                            FakeDevice::At(1)};
  StageStreams streams({&a, &b}, devices);
  LocalTransports transports(devices, streams);
  Transport &sender = *transports.All()[0], &receiver = *transports.All()[1];
  P2POp send{true, 1, 7, EmptyOn(0)}, receive{false, 0, 7, EmptyOn(1)};
  {
    const c10::MultiStreamGuard guard(streams.Arrivals(devices[1]));
    receiver.Start(receive);
  }
  {
    const c10::MultiStreamGuard guard(streams.Of(0));
    sender.Start(send);
  }
  {
    const c10::MultiStreamGuard guard(streams.Of(1));
    receiver.Wait(receive);
  }
  const DeviceEvent used(streams.HomeOf(1)), elsewhere(devices[1]);
  FakeDevice::RunAll(devices[1], 1);
  EXPECT_FALSE(used.reached()) << "before it was sent";
  EXPECT_TRUE(elsewhere.reached()) << "other streams do not wait";
  FakeDevice::RunAll(devices[0], 2);
  FakeDevice::RunAll(devices[1], 3);
  EXPECT_TRUE(used.reached());
  EXPECT_EQ(receiver.TakeWaits().size(), 1u);
  EXPECT_EQ(FakeDevice::waits(), 0);
}

TEST(MeasureLinkTest, TheFitGoesThroughBothPoints) {
  const LinkCosts link = FitLink(4, 10e-6, 1004, 30e-6);
  EXPECT_DOUBLE_EQ(link.beta_seconds_per_byte, 20e-9);
  EXPECT_DOUBLE_EQ(link.alpha_seconds, 10e-6 - 4 * 20e-9);
}

TEST(MeasureLinkTest, NoiseDoesNotMakeCostsNegative) {
  const LinkCosts link = FitLink(4, 30e-6, 1004, 10e-6);
  EXPECT_EQ(link.beta_seconds_per_byte, 0);
  EXPECT_DOUBLE_EQ(link.alpha_seconds, 30e-6);
  EXPECT_EQ(FitLink(4, 1e-6, 4, 2e-6).beta_seconds_per_byte, 0);
}

TEST(MeasureLinkTest, AllRanksGetTheSameCosts) {
  for (int num_ranks = 1; num_ranks <= 4; ++num_ranks) {
    std::vector<LinkCosts> links(num_ranks);
    OnRanks(num_ranks, [&](const Group& group, int rank) {
      links[rank] = MeasureLink(group, c10::kCPU, 1 << 20);
    });
    for (const LinkCosts& link : links) {
      EXPECT_EQ(link.alpha_seconds, links[0].alpha_seconds);
      EXPECT_EQ(link.beta_seconds_per_byte, links[0].beta_seconds_per_byte);
      EXPECT_EQ(link.alpha_seconds > 0, num_ranks > 1);
    }
  }
}

}  // namespace
}  // namespace rankwise

// What a GPU would be given, and in which order, on a device that stands still
// until it is told to go on.

#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "c10/core/StreamGuard.h"
#include "gtest/gtest.h"
#include "parallel/device/fake_device_for_test.h"
#include "parallel/device/moment.h"
#include "parallel/pipeline/local_mail.h"
#include "parallel/pipeline/stage_streams.h"

namespace rankwise {
namespace {

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
  const Moment before(FakeDevice::At(0));
  streams.Begin();
  const Moment in_a(streams.HomeOf(0)), in_b(streams.HomeOf(1));
  streams.End();
  const Moment after(FakeDevice::At(1));
  FakeDevice::RunAll(FakeDevice::At(1), 1);
  EXPECT_FALSE(in_b.reached()) << "before what the other device was given";
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
  LocalPostOffice office(devices, streams);
  const auto sender = office.MailOf(0), receiver = office.MailOf(1);
  P2POp send(true, 1, 7, EmptyOn(0)), receive(false, 0, 7, EmptyOn(1));
  {
    const c10::MultiStreamGuard guard(streams.Arrivals(devices[1]));
    receiver->Start(receive);
  }
  {
    const c10::MultiStreamGuard guard(streams.Of(0));
    sender->Start(send);
  }
  {
    const c10::MultiStreamGuard guard(streams.Of(1));
    receiver->Wait(receive);
  }
  const Moment used(streams.HomeOf(1)), elsewhere(devices[1]);
  FakeDevice::RunAll(devices[1], 1);
  EXPECT_FALSE(used.reached()) << "before it was sent";
  EXPECT_TRUE(elsewhere.reached()) << "who does not use it does not wait";
  FakeDevice::RunAll(devices[0], 2);
  FakeDevice::RunAll(devices[1], 3);
  EXPECT_TRUE(used.reached());
  EXPECT_EQ(receiver->TakeWaits().size(), 1u);
  EXPECT_EQ(FakeDevice::waits(), 0);
}

}  // namespace
}  // namespace rankwise

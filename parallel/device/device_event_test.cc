#include "parallel/device/device_event.h"

#include <thread>
#include <type_traits>
#include <utility>

#include "c10/core/StreamGuard.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "parallel/device/fake_device_for_test.h"

namespace rankwise {
namespace {

// Misuse does not compile. A DeviceEvent is neither a number nor a time of a
// clock, and cannot be compared, subtracted or copied; seconds require two of
// them.
template <typename A, typename B, typename = void>
struct Subtracts : std::false_type {};
template <typename A, typename B>
struct Subtracts<A, B,
                 std::void_t<decltype(std::declval<A>() - std::declval<B>())>>
    : std::true_type {};

template <typename A, typename B, typename = void>
struct Compares : std::false_type {};
template <typename A, typename B>
struct Compares<A, B,
                std::void_t<decltype(std::declval<A>() < std::declval<B>())>>
    : std::true_type {};

using TimePoint = std::chrono::steady_clock::time_point;
using Between = decltype(&SecondsBetween);
using Wait = decltype(&WaitForSecondsBetween);

static_assert(!std::is_convertible_v<DeviceEvent, double>);
static_assert(!std::is_convertible_v<DeviceEvent, int64_t>);
static_assert(!std::is_convertible_v<DeviceEvent, bool>);
static_assert(!std::is_convertible_v<DeviceEvent, TimePoint>);
static_assert(!std::is_constructible_v<double, DeviceEvent>);
static_assert(!std::is_constructible_v<TimePoint, DeviceEvent>);
static_assert(!Subtracts<DeviceEvent, DeviceEvent>::value);
static_assert(!Subtracts<DeviceEvent, TimePoint>::value);
static_assert(!Subtracts<TimePoint, DeviceEvent>::value);
static_assert(!Compares<DeviceEvent, DeviceEvent>::value);
static_assert(!Compares<DeviceEvent, TimePoint>::value);
static_assert(Subtracts<TimePoint, TimePoint>::value &&
                  Compares<TimePoint, TimePoint>::value,
              "the traits detect existing operators");

static_assert(!std::is_copy_constructible_v<DeviceEvent>);
static_assert(!std::is_copy_assignable_v<DeviceEvent>);
static_assert(!std::is_default_constructible_v<DeviceEvent>,
              "an event that was never recorded has no time");
static_assert(!std::is_convertible_v<c10::Device, DeviceEvent>);
static_assert(!std::is_convertible_v<TimePoint, DeviceEvent>);
static_assert(!std::is_constructible_v<DeviceEvent, TimePoint>,
              "a time of the host is not an event");

static_assert(
    std::is_same_v<std::invoke_result_t<Between, DeviceEvent, DeviceEvent>,
                   std::optional<double>>,
    "callers must check whether there are seconds");
static_assert(!std::is_invocable_v<Between, DeviceEvent>);
static_assert(!std::is_invocable_v<Wait, DeviceEvent>);
static_assert(!std::is_invocable_v<Between, DeviceEvent, TimePoint>);
static_assert(!std::is_invocable_v<Wait, DeviceEvent, TimePoint>);
static_assert(!std::is_invocable_v<Wait, TimePoint, DeviceEvent>);

static_assert(!std::is_convertible_v<PendingDuration, double>,
              "seconds of a device require an explicit Wait");
static_assert(!std::is_constructible_v<PendingDuration, DeviceEvent>);
static_assert(!std::is_copy_constructible_v<PendingDuration>);

TEST(CpuEventTest, IsTheHostsClock) {
  const TimePoint before = std::chrono::steady_clock::now();
  const DeviceEvent from(at::kCPU);
  EXPECT_TRUE(from.reached());
  EXPECT_GE(from.given(), before);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const DeviceEvent to(c10::Stream(c10::Stream::DEFAULT, at::kCPU));
  to.Wait();
  to.Block(c10::Stream(c10::Stream::DEFAULT, at::kCPU));
  const double host =
      std::chrono::duration<double>(to.given() - from.given()).count();
  EXPECT_GE(host, 0.005);
  EXPECT_EQ(SecondsBetween(from, to), host);
  EXPECT_EQ(WaitForSecondsBetween(from, to), host);
  EXPECT_EQ(SecondsBetween(to, from), -host);
}

TEST(CpuEventTest, StandsOnTheHostsClock) {
  const HostAnchor anchor(at::kCPU);
  const DeviceEvent moment(at::kCPU);
  const double host =
      std::chrono::duration<double>(moment.given().time_since_epoch()).count();
  ASSERT_TRUE(anchor.HostSeconds(moment).has_value());
  EXPECT_NEAR(*anchor.HostSeconds(moment), host, 1e-6);
}

const c10::Device kFirst = FakeDevice::At(0);
const c10::Device kSecond = FakeDevice::At(1);

c10::Stream NewStream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type())
      .getStreamFromGlobalPool(device);
}

class AcceleratorEventTest : public testing::Test {
 protected:
  AcceleratorEventTest() { FakeDevice::Reset(); }
};

TEST_F(AcceleratorEventTest, GivesNothingBeforeBothAreReached) {
  const DeviceEvent from(kFirst);
  EXPECT_FALSE(from.reached());
  FakeDevice::RunAll(kFirst, 2);
  const DeviceEvent to(kFirst);
  EXPECT_TRUE(from.reached());
  EXPECT_FALSE(to.reached());
  EXPECT_EQ(SecondsBetween(from, to), std::nullopt);
  EXPECT_EQ(SecondsBetween(to, from), std::nullopt);
  FakeDevice::RunAll(kFirst, 5);
  EXPECT_DOUBLE_EQ(SecondsBetween(from, to).value(), 3);
  EXPECT_DOUBLE_EQ(SecondsBetween(to, from).value(), -3);
  EXPECT_EQ(FakeDevice::waits(), 0) << "queries never wait";
}

TEST_F(AcceleratorEventTest, SecondsAreTheDevicesAndNotTheHosts) {
  const DeviceEvent from(kFirst), to(kFirst);
  FakeDevice::RunAll(kFirst, 100);
  EXPECT_EQ(SecondsBetween(from, to), 0);
  EXPECT_GT(to.given(), from.given());
}

TEST_F(AcceleratorEventTest, WaitingWaits) {
  const DeviceEvent from(kFirst);
  FakeDevice::RunAll(kFirst, 1);
  const DeviceEvent to(kFirst);
  FakeDevice::WhenHostWaits([] { FakeDevice::RunAll(kFirst, 8); });
  EXPECT_DOUBLE_EQ(WaitForSecondsBetween(from, to), 7);
  EXPECT_EQ(FakeDevice::waits(), 1);
  EXPECT_DOUBLE_EQ(WaitForSecondsBetween(from, to), 7);
  EXPECT_EQ(FakeDevice::waits(), 1) << "it is reached";
}

TEST_F(AcceleratorEventTest, IsOfTheCurrentStream) {
  const c10::Stream other = NewStream(kFirst);
  const DeviceEvent on_default(kFirst);
  const c10::StreamGuard guard(other);
  const DeviceEvent on_other(kFirst);
  FakeDevice::Run(other, 1);
  EXPECT_TRUE(on_other.reached());
  EXPECT_FALSE(on_default.reached());
}

TEST_F(AcceleratorEventTest, AnotherStreamWaitsForItAndTheHostDoesNot) {
  const c10::Stream producer = NewStream(kFirst);
  const c10::Stream consumer = NewStream(kFirst);
  const DeviceEvent made(producer);
  made.Block(consumer);
  const DeviceEvent used(consumer);
  FakeDevice::Run(consumer, 1);
  EXPECT_FALSE(used.reached());
  FakeDevice::Run(producer, 2);
  FakeDevice::Run(consumer, 3);
  EXPECT_TRUE(used.reached());
  EXPECT_EQ(FakeDevice::waits(), 0);
}

TEST_F(AcceleratorEventTest, MomentsOfTwoDevicesAreRefused) {
  const DeviceEvent first(kFirst), second(kSecond), host(at::kCPU);
  FakeDevice::RunAll(kFirst, 1);
  FakeDevice::RunAll(kSecond, 2);
  EXPECT_THROW(SecondsBetween(first, second), c10::Error);
  EXPECT_THROW(WaitForSecondsBetween(second, first), c10::Error);
  EXPECT_THROW(SecondsBetween(first, host), c10::Error);
  EXPECT_THROW(SecondsBetween(host, first), c10::Error);
}

TEST_F(AcceleratorEventTest, AnchorsPutTwoDevicesOnOneClock) {
  // The clocks of the two devices are unrelated.
  constexpr double kFirstClock = 1000, kSecondClock = 7;
  FakeDevice::WhenHostWaits([] {
    FakeDevice::RunAll(kFirst, kFirstClock);
    FakeDevice::RunAll(kSecond, kSecondClock);
  });
  const HostAnchor first_anchor(kFirst), second_anchor(kSecond);
  EXPECT_EQ(FakeDevice::waits(), 2);
  const DeviceEvent first(kFirst), second(kSecond);
  EXPECT_EQ(first_anchor.HostSeconds(first), std::nullopt);
  FakeDevice::RunAll(kFirst, kFirstClock + 60);
  FakeDevice::RunAll(kSecond, kSecondClock + 90);
  const double between = second_anchor.HostSeconds(second).value() -
                         first_anchor.HostSeconds(first).value();
  EXPECT_NEAR(between, 30, 5) << "plus the time between the two anchors";
  EXPECT_THROW(first_anchor.HostSeconds(second), c10::Error);
}

TEST_F(AcceleratorEventTest, MovesWithItsTime) {
  DeviceEvent from(kFirst);
  FakeDevice::RunAll(kFirst, 1);
  DeviceEvent to(kFirst);
  FakeDevice::RunAll(kFirst, 3);
  const DeviceEvent moved = std::move(from);
  EXPECT_DOUBLE_EQ(SecondsBetween(moved, to).value(), 2);
  from = std::move(to);
  EXPECT_DOUBLE_EQ(SecondsBetween(moved, from).value(), 2);
}

TEST_F(AcceleratorEventTest, PendingDurationAddUpWhenTheDeviceIsThere) {
  DeviceEvent from(kFirst);
  FakeDevice::RunAll(kFirst, 1);
  PendingDuration later = 0.5;
  EXPECT_TRUE(later.reached());
  later += PendingDuration(std::move(from), DeviceEvent(kFirst));
  DeviceEvent second(kSecond);
  FakeDevice::RunAll(kSecond, 10);
  later += PendingDuration(std::move(second), DeviceEvent(kSecond));
  EXPECT_FALSE(later.reached());
  FakeDevice::RunAll(kFirst, 3);
  EXPECT_FALSE(later.reached());
  FakeDevice::WhenHostWaits([] { FakeDevice::RunAll(kSecond, 14); });
  EXPECT_DOUBLE_EQ(later.Wait(), 0.5 + 2 + 4);
  EXPECT_TRUE(later.reached());
  EXPECT_EQ(FakeDevice::waits(), 1);
}

}  // namespace
}  // namespace rankwise

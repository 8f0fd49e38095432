#include <chrono>
#include <optional>
#include <utility>

#include "ATen/ops/matmul.h"
#include "ATen/ops/ones.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "c10/util/Exception.h"
#include "gtest/gtest.h"
#include "parallel/device/device_event.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

// About a second of work, submitted within a few milliseconds.
class LongWork {
 public:
  explicit LongWork(c10::Device device)
      : matrix_(at::ones({kSide, kSide},
                         at::TensorOptions(at::kFloat).device(device))) {
    (void)at::matmul(matrix_, matrix_);  // selects its kernels
    c10::impl::VirtualGuardImpl(device.type())
        .synchronizeDevice(device.index());
  }
  void Give() const {
    for (int i = 0; i < kProducts; ++i) (void)at::matmul(matrix_, matrix_);
  }

 private:
  static constexpr int64_t kSide = 8192;
  static constexpr int kProducts = 40;  // of 2 * 8192^3 operations
  const at::Tensor matrix_;
};

const c10::Device kGpu(c10::kCUDA, 0);

TEST(EventGpuTest, TheHostIsDoneLongBeforeTheDevice) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const LongWork work(kGpu);
  const DeviceEvent from(kGpu);
  work.Give();
  const DeviceEvent to(kGpu);
  EXPECT_FALSE(to.reached());
  EXPECT_EQ(SecondsBetween(from, to), std::nullopt);
  const double host = Seconds(to.given()) - Seconds(from.given());
  const double device = WaitForSecondsBetween(from, to);
  EXPECT_TRUE(to.reached());
  EXPECT_GT(device, 2 * host)
      << "what an unsynchronised clock would have measured";
  EXPECT_EQ(SecondsBetween(from, to), device);
}

TEST(EventGpuTest, StandsOnTheHostsClock) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const LongWork work(kGpu);
  const HostAnchor anchor(kGpu);
  const Clock::time_point begin = Clock::now();
  work.Give();
  const DeviceEvent end(kGpu);
  EXPECT_EQ(anchor.HostSeconds(end), std::nullopt);
  end.Wait();
  const Clock::time_point after = Clock::now();
  constexpr double kSlack = 1e-3;  // error of the anchor and of the wake-up
  EXPECT_GT(anchor.HostSeconds(end).value(), Seconds(begin) - kSlack);
  EXPECT_LT(anchor.HostSeconds(end).value(), Seconds(after) + kSlack);
}

TEST(EventGpuTest, AnotherStreamWaitsForIt) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const LongWork work(kGpu);
  const c10::Stream other =
      c10::impl::VirtualGuardImpl(c10::kCUDA).getStreamFromGlobalPool(kGpu);
  work.Give();
  const DeviceEvent made(kGpu);
  made.Block(other);
  const DeviceEvent used(other);
  EXPECT_FALSE(used.reached());
  EXPECT_GE(WaitForSecondsBetween(made, used), 0);
}

TEST(EventGpuTest, PendingDurationAreThereLater) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const LongWork work(kGpu);
  DeviceEvent from(kGpu);
  work.Give();
  const PendingDuration later(std::move(from), DeviceEvent(kGpu));
  EXPECT_FALSE(later.reached());
  EXPECT_GT(later.Wait(), 0);
  EXPECT_TRUE(later.reached());
}

TEST(EventGpuTest, MomentsOfTwoGpusAreRefused) {
  if (auto why = WhyTooFewGpus(2); !why.empty()) GTEST_SKIP() << why;
  const c10::Device other(c10::kCUDA, 1);
  const DeviceEvent first(kGpu), second(other);
  EXPECT_THROW(WaitForSecondsBetween(first, second), c10::Error);
  const HostAnchor anchor(kGpu), other_anchor(other);
  const DeviceEvent on_first(kGpu);
  on_first.Wait();
  const DeviceEvent on_second(other);
  on_second.Wait();
  EXPECT_GT(*other_anchor.HostSeconds(on_second) + 1e-3,
            *anchor.HostSeconds(on_first));
}

}  // namespace
}  // namespace rankwise

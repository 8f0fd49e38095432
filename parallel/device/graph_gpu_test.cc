#include "ATen/TensorOperators.h"
#include "ATen/ops/full.h"
#include "c10/core/CachingDeviceAllocator.h"
#include "c10/core/Device.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "gtest/gtest.h"
#include "parallel/device/graph.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

TEST(DeviceGraphTest, ReplaysWhatWasRecorded) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  auto graph = MakeDeviceGraph(kGpu);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const at::Tensor input =
      at::full({4}, 1.0, at::TensorOptions(at::kFloat).device(kGpu));
  at::Tensor output;
  const absl::Status captured = (*graph)->Capture([&] {
    EXPECT_TRUE(IsCapturing(kGpu));
    output = input * 3;
    return absl::OkStatus();
  });
  ASSERT_TRUE(captured.ok()) << captured;
  EXPECT_FALSE(IsCapturing(kGpu));
  (*graph)->Replay();
  EXPECT_EQ(output.cpu().sum().item<float>(), 12);
  input.fill_(2);
  (*graph)->Replay();
  EXPECT_EQ(output.cpu().sum().item<float>(), 24);
}

TEST(DeviceGraphTest, SaysWhatCannotBeRecorded) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  auto graph = MakeDeviceGraph(kGpu);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const at::Tensor input =
      at::full({4}, 1.0, at::TensorOptions(at::kFloat).device(kGpu));
  const absl::Status captured = (*graph)->Capture([&] {
    (void)input.sum().item<float>();
    return absl::OkStatus();
  });
  EXPECT_EQ(captured.code(), absl::StatusCode::kFailedPrecondition) << captured;
  EXPECT_EQ(input.cpu().sum().item<float>(), 4) << "the device still works";
}

int64_t AllocatedBytes() {
  return c10::getDeviceAllocator(kGpu.type())
      ->getDeviceStats(kGpu.index())
      .allocated_bytes[0]
      .current;
}

TEST(DeviceGraphTest, AFailedRecordingLeavesNoMemoryBehind) {
  if (auto why = WhyTooFewGpus(1); !why.empty()) GTEST_SKIP() << why;
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(kGpu);
  const at::Tensor input = at::full({4}, 1.0, options);
  {
    auto failing = MakeDeviceGraph(kGpu);
    ASSERT_TRUE(failing.ok()) << failing.status();
    EXPECT_FALSE((*failing)
                     ->Capture([&] {
                       (void)(input * 2).sum().item<float>();
                       return absl::OkStatus();
                     })
                     .ok());
  }
  const c10::impl::VirtualGuardImpl guard(kGpu.type());
  const c10::Stream other = guard.getStreamFromGlobalPool(kGpu);
  const int64_t before = AllocatedBytes();
  for (int i = 0; i < 100; ++i) {
    const at::Tensor used_by_two = at::full({1 << 20}, 1.0, options);
    used_by_two.record_stream(other);
  }
  guard.synchronizeDevice(kGpu.index());
  const at::Tensor next = at::full({1 << 20}, 1.0, options);
  EXPECT_LT(AllocatedBytes() - before, 10 * static_cast<int64_t>(next.nbytes()))
      << "blocks that two streams have used are free again";

  auto graph = MakeDeviceGraph(kGpu);
  ASSERT_TRUE(graph.ok()) << graph.status();
  at::Tensor output;
  const absl::Status captured = (*graph)->Capture([&] {
    output = input * 3;
    return absl::OkStatus();
  });
  ASSERT_TRUE(captured.ok()) << captured;
  (*graph)->Replay();
  EXPECT_EQ(output.cpu().sum().item<float>(), 12);
}

}  // namespace
}  // namespace rankwise

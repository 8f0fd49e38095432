#include "ATen/TensorOperators.h"
#include "ATen/ops/full.h"
#include "c10/core/Device.h"
#include "gtest/gtest.h"
#include "parallel/device/graph.h"
#include "parallel/device/require_gpus.h"

namespace rankwise {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

TEST(DeviceGraphTest, ReplaysWhatWasRecorded) {
  if (auto why = WhyNotOn(1); !why.empty()) GTEST_SKIP() << why;
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
  EXPECT_EQ(output.sum().item<float>(), 12);
  input.fill_(2);
  (*graph)->Replay();
  EXPECT_EQ(output.sum().item<float>(), 24);
}

TEST(DeviceGraphTest, SaysWhatCannotBeRecorded) {
  if (auto why = WhyNotOn(1); !why.empty()) GTEST_SKIP() << why;
  auto graph = MakeDeviceGraph(kGpu);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const at::Tensor input =
      at::full({4}, 1.0, at::TensorOptions(at::kFloat).device(kGpu));
  const absl::Status captured = (*graph)->Capture([&] {
    (void)input.sum().item<float>();
    return absl::OkStatus();
  });
  EXPECT_EQ(captured.code(), absl::StatusCode::kFailedPrecondition) << captured;
  EXPECT_EQ(input.sum().item<float>(), 4) << "the device still works";
}

}  // namespace
}  // namespace rankwise

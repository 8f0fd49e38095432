#include "trainers/observe/memory.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <sstream>
#include <vector>

#include "parallel/device/fake_device_for_test.h"

namespace rankwise {
namespace {

TEST(PeakMemoryTest, ReadsTheKernelsLine) {
  std::istringstream status(
      "Name:\tVmHWM: \nVmPeak:\t  900 kB\nVmHWM:\t    1234 kB\nVmRSS:\t1 kB\n");
  EXPECT_EQ(PeakResidentBytes(status), 1234 * 1024);
  std::istringstream other("Name:\tsingle\nVmPeak:\t  900 kB\n");
  EXPECT_EQ(PeakResidentBytes(other), 0);
}

TEST(PeakMemoryTest, RemembersWhatWasFreed) {
  constexpr size_t kBytes = 64 << 20;
  Worker worker;
  worker.env.rank = 3;
  const int64_t before = MeasurePeakMemory(worker).peak_host_bytes;
  {
    std::vector<char> block(kBytes);
    volatile char* const bytes = block.data();
    for (size_t i = 0; i < kBytes; i += 1024) bytes[i] = 1;
  }
  const MemoryRecord after = MeasurePeakMemory(worker);
  EXPECT_EQ(after.rank, 3);
  EXPECT_GT(after.peak_host_bytes, before + static_cast<int64_t>(kBytes) / 2);
  EXPECT_EQ(after.peak_device_bytes, 0);
}

TEST(PeakMemoryTest, AddsUpWhatEachDeviceHeldAtMost) {
  Worker worker;
  worker.device = FakeDevice::At(0);
  worker.devices = {FakeDevice::At(0), FakeDevice::At(1)};
  EXPECT_EQ(MeasurePeakMemory(worker).peak_device_bytes, 0)
      << "no device was used yet";
  const auto on = [](int device) {
    return at::TensorOptions(at::kByte).device(FakeDevice::At(device));
  };
  constexpr int64_t kBytes = 1 << 20;
  at::empty({3 * kBytes}, on(0));
  const at::Tensor kept = at::empty({kBytes}, on(0));
  EXPECT_EQ(MeasurePeakMemory(worker).peak_device_bytes, 3 * kBytes);
  const at::Tensor other = at::empty({2 * kBytes}, on(1));
  EXPECT_EQ(MeasurePeakMemory(worker).peak_device_bytes, 5 * kBytes);
}

}  // namespace
}  // namespace rankwise

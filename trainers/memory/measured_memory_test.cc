#include "trainers/memory/measured_memory.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>
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

int64_t BytesOf(int64_t floats) { return 4 * floats; }

TEST(AllocationMeterTest, CountsThisThreadsTensorsWhoeverFreesThem) {
  const at::Tensor before = at::empty({1000});
  AllocationMeter meter{Worker()};
  at::Tensor closed = at::empty({1000});
  meter.Open();
  closed.reset();  // was not counted
  at::Tensor kept = at::empty({300});
  at::empty({5000});
  at::Tensor sent = at::empty({20});
  EXPECT_EQ(meter.bytes(), BytesOf(320));
  std::thread([&] {
    sent.reset();
    const at::Tensor other = at::empty({7000});
    EXPECT_EQ(meter.bytes(), BytesOf(300));
  }).join();
  meter.Close();
  const at::Tensor after = at::empty({1000});
  EXPECT_EQ(meter.bytes(), BytesOf(300));
  meter.Open();
  EXPECT_EQ(meter.bytes(), 0);
  kept.reset();
  EXPECT_EQ(meter.bytes(), -BytesOf(300));
}

TEST(AllocationMeterTest, CountsWhatIsOnAllAccelerators) {
  Worker worker;
  worker.device = FakeDevice::At(0);
  worker.devices = {FakeDevice::At(0), FakeDevice::At(1)};
  AllocationMeter meter(worker);
  meter.Open();
  const auto on = [](int device) {
    return at::TensorOptions(at::kFloat).device(FakeDevice::At(device));
  };
  const at::Tensor first = at::empty({300}, on(0));
  const at::Tensor second = at::empty({20}, on(1));
  at::empty({5000}, on(1));
  const at::Tensor on_host = at::empty({1000});
  EXPECT_EQ(meter.bytes(), BytesOf(320));
}

}  // namespace
}  // namespace rankwise

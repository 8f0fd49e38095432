#include "trainers/peak_memory.h"

#include <gtest/gtest.h>

#include <sstream>
#include <vector>

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

}  // namespace
}  // namespace rankwise

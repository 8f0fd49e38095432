#include "comm_bench/cuda/limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"

namespace rankwise::micro {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kCache = 1000;

GpuFacts Gpu(double memory_bytes_per_second) {
  GpuFacts gpu;
  gpu.l2_bytes = kCache;
  gpu.memory_bytes_per_second = memory_bytes_per_second;
  return gpu;
}

TEST(MemoryLimit, IsTheMemorysRate) {
  const Limit limit = MemoryLimit(Gpu(2e12), 4 * kCache);
  EXPECT_EQ(limit.bytes_per_second, 2e12);
  EXPECT_EQ(limit.what, "of memory");
}

TEST(MemoryLimit, IsNoLimitOfWhatTheCacheHolds) {
  const Limit limit = MemoryLimit(Gpu(2e12), 4 * kCache - 1);
  EXPECT_EQ(limit.bytes_per_second, 0);
  EXPECT_THAT(limit.what, HasSubstr("cache"));
}

TEST(MemoryLimit, IsUnknownWhereTheDriverDoesNotTell) {
  const Limit limit = MemoryLimit(Gpu(0), 4 * kCache);
  EXPECT_EQ(limit.bytes_per_second, 0);
  EXPECT_THAT(limit.what, HasSubstr("does not tell"));
}

TEST(HostLinkLimit, IsTheLinksRate) {
  const Limit limit = HostLinkLimit(false, PcieLink{16, 16});
  EXPECT_DOUBLE_EQ(limit.bytes_per_second, 32e9 * 128 / 130);
  EXPECT_EQ(limit.what, "of PCIe 16 GT/s x16");
}

TEST(HostLinkLimit, IsUnknownWithoutALinkAndForACoherentOne) {
  const Limit none =
      HostLinkLimit(false, absl::NotFoundError("no such device"));
  EXPECT_EQ(none.bytes_per_second, 0);
  EXPECT_EQ(none.what, "limit unknown: no such device");
  const Limit coherent = HostLinkLimit(true, PcieLink{16, 16});
  EXPECT_EQ(coherent.bytes_per_second, 0);
  EXPECT_THAT(coherent.what, HasSubstr("C2C"));
}

TEST(PercentOf, IsTheShareAndZeroForAnUnknownLimit) {
  EXPECT_DOUBLE_EQ(PercentOf({2e12, "of memory"}, 1.5e12), 75);
  EXPECT_EQ(PercentOf({}, 1.5e12), 0);
}

}  // namespace
}  // namespace rankwise::micro

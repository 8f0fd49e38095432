#include "comm_bench/cuda/limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"

namespace rankwise::micro {

namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

TEST(ParsePcieLink, TakesTheTextsOfSysfs) {
  const auto link = ParsePcieLink("16.0 GT/s PCIe", "16");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->gigatransfers_per_second, 16);
  EXPECT_EQ(link->lanes, 16);
  EXPECT_EQ(PcieLinkText(*link), "PCIe 16 GT/s x16");
}

TEST(ParsePcieLink, TakesOlderKernelsTexts) {
  const auto link = ParsePcieLink("2.5 GT/s", "x8\n");
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->gigatransfers_per_second, 2.5);
  EXPECT_EQ(link->lanes, 8);
}

TEST(ParsePcieLink, RefusesWhatSaysNothing) {
  for (const auto& [speed, width] :
       {std::pair("Unknown", "16"), std::pair("Unknown speed", "16"),
        std::pair("16.0 GT/s PCIe", "0"), std::pair("16.0 GT/s PCIe", "x"),
        std::pair("16.0", "16"), std::pair("fast GT/s", "16"),
        std::pair("0 GT/s", "16"), std::pair("nan GT/s", "16"),
        std::pair("", ""), std::pair("16.0 GT/s PCIe", "255x")}) {
    const auto link = ParsePcieLink(speed, width);
    EXPECT_TRUE(absl::IsInvalidArgument(link.status()))
        << speed << " " << width;
    EXPECT_THAT(std::string(link.status().message()), HasSubstr(speed));
  }
}

TEST(PcieBytesPerSecond, TakesTheEncodingOff) {
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({2.5, 16}), 4e9);
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({5, 1}), 0.5e9);
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({8, 16}), 16e9 * 128 / 130);
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({16, 16}), 32e9 * 128 / 130);
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({32, 16}), 64e9 * 128 / 130);
  EXPECT_DOUBLE_EQ(PcieBytesPerSecond({64, 16}), 128e9 * 236 / 256);
}

// A tree like sysfs's: the device's folder is in its bridge's, and `devices`
// links to it.
class ReadPcieLinkTest : public ::testing::Test {
 protected:
  ReadPcieLinkTest() {
    const std::string test =
        ::testing::UnitTest::GetInstance()->current_test_info()->name();
    root_ = fs::path(std::getenv("TEST_TMPDIR")) / test;
    fs::create_directories(Device());
    fs::create_directories(root_ / "devices");
    fs::create_directory_symlink(Device(), root_ / "devices/0000:3b:00.0");
  }

  fs::path Bridge() const { return root_ / "pci0000:3a/0000:3a:00.0"; }
  fs::path Device() const { return Bridge() / "0000:3b:00.0"; }

  static void Write(const fs::path& folder, const std::string& which,
                    const std::string& speed, const std::string& width) {
    std::ofstream(folder / (which + "_link_speed")) << speed << "\n";
    std::ofstream(folder / (which + "_link_width")) << width << "\n";
  }

  absl::StatusOr<PcieLink> Read(const std::string& id = "0000:3B:00.0") const {
    return ReadPcieLink(root_ / "devices", id);
  }

  fs::path root_;
};

TEST_F(ReadPcieLinkTest, AnIdleLinkIsNotTakenForASlowOne) {
  Write(Device(), "max", "32.0 GT/s PCIe", "16");
  Write(Device(), "current", "2.5 GT/s PCIe", "16");
  const auto link = Read();
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(PcieLinkText(*link), "PCIe 32 GT/s x16");
}

TEST_F(ReadPcieLinkTest, TheSlowerOfDeviceAndBridgeCounts) {
  Write(Device(), "max", "32.0 GT/s PCIe", "16");
  Write(Bridge(), "max", "16.0 GT/s PCIe", "16");
  const auto link = Read();
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(PcieLinkText(*link), "PCIe 16 GT/s x16");
}

TEST_F(ReadPcieLinkTest, LanesThatAreNotInUseDoNotCount) {
  Write(Device(), "max", "32.0 GT/s PCIe", "16");
  Write(Device(), "current", "32.0 GT/s PCIe", "8");
  const auto link = Read();
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(link->lanes, 8);
}

TEST_F(ReadPcieLinkTest, SaysWhatIsMissing) {
  EXPECT_TRUE(absl::IsNotFound(Read().status())) << Read().status();
  const auto other = Read("0000:FF:00.0");
  EXPECT_TRUE(absl::IsNotFound(other.status()));
  EXPECT_THAT(std::string(other.status().message()), HasSubstr("0000:FF:00.0"));
  Write(Device(), "max", "Unknown", "0");
  EXPECT_TRUE(absl::IsInvalidArgument(Read().status())) << Read().status();
}

}  // namespace

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
  EXPECT_THAT(limit.what, HasSubstr("does not report"));
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

#include "comm_bench/cuda/limit.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "third_party/absl/status_macros.h"

namespace rankwise::micro {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> ReadLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line))
    return absl::NotFoundError(absl::StrCat(path.string(), " cannot be read"));
  return line;
}

absl::StatusOr<PcieLink> ReadLink(const fs::path& device,
                                  const std::string& which) {
  ASSIGN_OR_RETURN(const auto speed,
                   ReadLine(device / (which + "_link_speed")));
  ASSIGN_OR_RETURN(const auto width,
                   ReadLine(device / (which + "_link_width")));
  return ParsePcieLink(speed, width);
}

// Returns the fraction of the line's bits that are data.
double EncodingShare(double gigatransfers) {
  constexpr double kLast8b10b = 5, kFirstFlit = 64;
  if (gigatransfers <= kLast8b10b) return 8.0 / 10;
  if (gigatransfers < kFirstFlit) return 128.0 / 130;
  return 236.0 / 256;
}

constexpr int64_t kCachesTouched = 4;

Limit Unknown(const std::string& why) {
  return {.what = "limit unknown: " + why};
}

}  // namespace

absl::StatusOr<PcieLink> ParsePcieLink(absl::string_view speed,
                                       absl::string_view width) {
  PcieLink link;
  const absl::string_view number = speed.substr(0, speed.find(" GT/s"));
  absl::string_view lanes = absl::StripAsciiWhitespace(width);
  absl::ConsumePrefix(&lanes, "x");
  if (number.size() == speed.size() ||
      !absl::SimpleAtod(number, &link.gigatransfers_per_second) ||
      !(link.gigatransfers_per_second > 0) ||
      !absl::SimpleAtoi(lanes, &link.lanes) || link.lanes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("a PCIe link of speed \"",
                                                   speed, "\" and width \"",
                                                   width, "\" says nothing"));
  }
  return link;
}

std::string PcieLinkText(const PcieLink& link) {
  return absl::StrCat("PCIe ", link.gigatransfers_per_second, " GT/s x",
                      link.lanes);
}

double PcieBytesPerSecond(const PcieLink& link) {
  constexpr double kGiga = 1e9, kBitsPerByte = 8;
  return link.gigatransfers_per_second * kGiga / kBitsPerByte * link.lanes *
         EncodingShare(link.gigatransfers_per_second);
}

absl::StatusOr<PcieLink> ReadPcieLink(const std::string& devices,
                                      absl::string_view pci_bus_id) {
  // Linux writes lower-case letters, CUDA upper-case ones.
  std::error_code error;
  const fs::path device = fs::canonical(
      fs::path(devices) / absl::AsciiStrToLower(pci_bus_id), error);
  if (error)
    return absl::NotFoundError(
        absl::StrCat(devices, " has no device \"", pci_bus_id, "\""));
  absl::StatusOr<PcieLink> link = ReadLink(device, "max");
  if (!link.ok()) return link;
  if (const auto bridge = ReadLink(device.parent_path(), "max"); bridge.ok()) {
    link->gigatransfers_per_second = std::min(link->gigatransfers_per_second,
                                              bridge->gigatransfers_per_second);
    link->lanes = std::min(link->lanes, bridge->lanes);
  }
  if (const auto now = ReadLink(device, "current"); now.ok())
    link->lanes = std::min(link->lanes, now->lanes);
  return link;
}

Limit MemoryLimit(const GpuFacts& gpu, int64_t touched_bytes) {
  if (touched_bytes < kCachesTouched * gpu.l2_bytes)
    return Unknown("small enough for the cache");
  if (gpu.memory_bytes_per_second <= 0)
    return Unknown("the driver does not report the memory's clock and width");
  return {gpu.memory_bytes_per_second, "of memory"};
}

Limit HostLinkLimit(bool coherent, const absl::StatusOr<PcieLink>& link) {
  if (coherent) return Unknown("the host's link is not PCIe (NVLink-C2C)");
  if (!link.ok()) return Unknown(std::string(link.status().message()));
  return {PcieBytesPerSecond(*link), absl::StrCat("of ", PcieLinkText(*link))};
}

double PercentOf(const Limit& limit, double bytes_per_second) {
  constexpr double kPercent = 100;
  if (limit.bytes_per_second <= 0) return 0;
  return kPercent * bytes_per_second / limit.bytes_per_second;
}

}  // namespace rankwise::micro

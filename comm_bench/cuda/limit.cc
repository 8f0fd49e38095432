#include "comm_bench/cuda/limit.h"

#include "absl/strings/str_cat.h"

namespace rankwise::micro {
namespace {

constexpr int64_t kCachesTouched = 4;

Limit Unknown(const std::string& why) {
  return {.what = "limit unknown: " + why};
}

}  // namespace

Limit MemoryLimit(const GpuFacts& gpu, int64_t touched_bytes) {
  if (touched_bytes < kCachesTouched * gpu.l2_bytes)
    return Unknown("small enough for the cache");
  if (gpu.memory_bytes_per_second <= 0)
    return Unknown("the driver does not tell the memory's clock and width");
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

// What a machine's memory and links could move at most: what rates are held
// against. Of a PCI Express link, as Linux tells it.
#ifndef RANKWISE_COMM_BENCH_CUDA_LIMIT_H_
#define RANKWISE_COMM_BENCH_CUDA_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {

struct PcieLink {
  double gigatransfers_per_second = 0;  // of one lane, in one direction
  int lanes = 0;
};

// Of the texts of sysfs: "16.0 GT/s PCIe" and "16" (or "x16").
// InvalidArgument, with the text, for others: a virtual machine may say
// "Unknown" and "0".
absl::StatusOr<PcieLink> ParsePcieLink(absl::string_view speed,
                                       absl::string_view width);

// "PCIe 16 GT/s x16".
std::string PcieLinkText(const PcieLink& link);

// In one direction, after the line's encoding: 8b/10b up to 5 GT/s, 128b/130b
// from 8 GT/s on, and 236 of a flit's 256 bytes from 64 GT/s on (PCI Express
// Base Specification). The headers of packets are not taken off: no copy
// reaches all of it.
double PcieBytesPerSecond(const PcieLink& link);

// The link of device `pci_bus_id` ("0000:3B:00.0"), of `devices`, the folder
// /sys/bus/pci/devices: the lower of the speeds that the device and the bridge
// above it can have (an idle link runs slower than that), and the lanes that
// are in use. NotFound where there is no such file, InvalidArgument where it
// says nothing.
absl::StatusOr<PcieLink> ReadPcieLink(const std::string& devices,
                                      absl::string_view pci_bus_id);

struct Limit {
  double bytes_per_second = 0;  // 0: not known
  std::string what;             // the limit's name, or why it is not known
};

// Of a kernel or copy that reads and writes `touched_bytes` in all, each byte
// once. Unknown where that is less than 4 times the L2 cache, which could then
// hold much of it from one run to the next.
Limit MemoryLimit(const GpuFacts& gpu, int64_t touched_bytes);

// Of copies between host and GPU. Unknown where the link is not read, and for
// `coherent` GPUs, which share the host's page tables: their link (NVLink-C2C)
// is not the PCIe link that Linux tells of.
Limit HostLinkLimit(bool coherent, const absl::StatusOr<PcieLink>& link);

// In percent; 0 for an unknown limit.
double PercentOf(const Limit& limit, double bytes_per_second);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_LIMIT_H_

// Limits of a machine's memory and links, for comparison with measured rates.
// The limit of a PCI Express link is read from Linux.
#ifndef RANKWISE_COMM_BENCH_CUDA_LIMIT_H_
#define RANKWISE_COMM_BENCH_CUDA_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {

struct PcieLink {
  double gigatransfers_per_second = 0;  // per lane and direction
  int lanes = 0;
};

// Parses sysfs's texts: "16.0 GT/s PCIe" and "16" (or "x16"). InvalidArgument,
// with the text, for others: a virtual machine may report "Unknown" and "0".
absl::StatusOr<PcieLink> ParsePcieLink(absl::string_view speed,
                                       absl::string_view width);

// Returns "PCIe 16 GT/s x16".
std::string PcieLinkText(const PcieLink& link);

// Returns the rate per direction after line encoding: 8b/10b up to 5 GT/s,
// 128b/130b from 8 GT/s on, and 236 of a flit's 256 bytes from 64 GT/s on (PCI
// Express Base Specification). Includes packet headers, so no copy reaches it.
double PcieBytesPerSecond(const PcieLink& link);

// Reads the link of device `pci_bus_id` ("0000:3B:00.0") in `devices`, the
// folder /sys/bus/pci/devices: the lower of the maximum speeds of the device
// and of the bridge above it (an idle link runs slower), and the number of
// lanes in use. NotFound without the files, InvalidArgument if they have no
// valid values.
absl::StatusOr<PcieLink> ReadPcieLink(const std::string& devices,
                                      absl::string_view pci_bus_id);

struct Limit {
  double bytes_per_second = 0;  // 0 if unknown
  std::string what;             // the limit's name, or why it is unknown
};

// Returns the limit of a kernel or copy that reads and writes `touched_bytes`
// in total, each byte once. Unknown below 4 times the L2 cache, which could
// hold much of the data between runs.
Limit MemoryLimit(const GpuFacts& gpu, int64_t touched_bytes);

// Returns the limit of copies between host and GPU. Unknown if the link cannot
// be read, and for `coherent` GPUs, which share the host's page tables: their
// link (NVLink-C2C) is not the PCIe link reported by Linux.
Limit HostLinkLimit(bool coherent, const absl::StatusOr<PcieLink>& link);

// Returns the rate in percent of the limit; 0 for an unknown limit.
double PercentOf(const Limit& limit, double bytes_per_second);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_LIMIT_H_

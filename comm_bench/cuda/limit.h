// What a machine's memory and links could move at most: what rates are held
// against.
#ifndef RANKWISE_COMM_BENCH_CUDA_LIMIT_H_
#define RANKWISE_COMM_BENCH_CUDA_LIMIT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "comm_bench/cuda/pcie_link.h"
#include "parallel/device/device_facts.h"

namespace rankwise::micro {

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

#include "trainers/observe/memory.h"

#include <stdlib.h>  // __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>

#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace rankwise {
namespace {

int64_t PeakDeviceBytes(c10::Device device) {
  using c10::CachingAllocator::StatType;
  c10::DeviceAllocator* const allocator =
      c10::getDeviceAllocator(device.type());
  if (!allocator->initialized()) return 0;  // it throws
  const auto stats = allocator->getDeviceStats(device.index());
  return stats.allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)].peak;
}

}  // namespace

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kLargestBlockOnHeap = 1 << 30;  // bytes; others are mapped
  if (mallopt(M_MMAP_THRESHOLD, kLargestBlockOnHeap) == 0) {
    // Before glibc 2.35 this is the most it takes.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
  }
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

int64_t PeakResidentBytes(std::istream& proc_status) {
  std::string name;
  while (proc_status >> name) {
    int64_t kibibytes = 0;
    if (name == "VmHWM:" && proc_status >> kibibytes) return kibibytes * 1024;
    proc_status.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

MemoryRecord MeasurePeakMemory(const Worker& worker) {
  MemoryRecord record;
  record.rank = worker.env.rank;
  std::ifstream status("/proc/self/status");
  record.peak_host_bytes = PeakResidentBytes(status);
  std::set<c10::DeviceIndex> seen;
  std::vector<c10::Device> devices = worker.devices;
  devices.push_back(worker.device);
  for (const c10::Device& device : devices) {
    if (device.is_cpu() || !seen.insert(device.index()).second) continue;
    record.peak_device_bytes += PeakDeviceBytes(device);
  }
  return record;
}

}  // namespace rankwise

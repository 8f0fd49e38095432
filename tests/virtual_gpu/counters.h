// Counts of host calls that cost time; written at process exit to the file
// RANKWISE_VIRTUAL_GPU_COUNTS, if set, one line per process.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_COUNTERS_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_COUNTERS_H_

#include <atomic>

namespace rankwise::virtual_gpu {

struct Counters {
  std::atomic<long> launches = 0;     // kernels, including cuBLAS's
  std::atomic<long> copies = 0;       // including sets
  std::atomic<long> collectives = 0;  // of NCCL; a group counts once
  std::atomic<long> graphs = 0;       // launched
  std::atomic<long> events = 0;       // created
  std::atomic<long> waits = 0;        // host waits: stream, event, device, copy
  std::atomic<long> allocations = 0;
};

Counters& Counts();

// Whether the counts are written at process exit.
bool WritesCounts();

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_COUNTERS_H_

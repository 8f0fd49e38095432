// Empties the processor's caches of what they hold.
#ifndef RANKWISE_COMM_BENCH_TIMING_CACHE_EVICTION_H_
#define RANKWISE_COMM_BENCH_TIMING_CACHE_EVICTION_H_

#include <cstddef>
#include <vector>

namespace rankwise::comm_bench {

class CacheEviction {
 public:
  // Allocates twice the last-level cache, as the kernel tells its size; 64 MiB
  // where it does not.
  CacheEviction();

  // Writes to every cache line of that memory, so that no line of anything else
  // stays cached.
  void Evict();

  size_t bytes() const { return memory_.size(); }

 private:
  std::vector<unsigned char> memory_;
};

}  // namespace rankwise::comm_bench

#endif  // RANKWISE_COMM_BENCH_TIMING_CACHE_EVICTION_H_

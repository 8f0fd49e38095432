#include "comm_bench/timing/cache_eviction.h"

#include <unistd.h>

#include <algorithm>

namespace rankwise::comm_bench {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kUnknown = size_t{64} << 20;

size_t BytesToWrite() {
  const long last = std::max(::sysconf(_SC_LEVEL3_CACHE_SIZE),
                             ::sysconf(_SC_LEVEL2_CACHE_SIZE));
  return last > 0 ? 2 * static_cast<size_t>(last) : kUnknown;
}

}  // namespace

CacheEviction::CacheEviction() : memory_(BytesToWrite()) {}

void CacheEviction::Evict() {
  // volatile: nobody reads what is written.
  volatile unsigned char* memory = memory_.data();
  for (size_t i = 0; i < memory_.size(); i += kLine) memory[i] = memory[i] + 1;
}

}  // namespace rankwise::comm_bench

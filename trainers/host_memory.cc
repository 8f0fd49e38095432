#include "trainers/host_memory.h"

#include <stdlib.h>  // __GLIBC__

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <limits>

namespace rankwise {

void KeepFreedMemory() {
#ifdef __GLIBC__
  constexpr int kLargestBlockOnHeap =
      1 << 30;  // bytes; larger ones are mapped one by one
  if (mallopt(M_MMAP_THRESHOLD, kLargestBlockOnHeap) == 0) {
    // Before glibc 2.35 this is the most it takes.
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
  }
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace rankwise

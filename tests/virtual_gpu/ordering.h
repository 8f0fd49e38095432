// Which work of a device is ordered before which, and whether two pieces of it
// use the same memory without being ordered.
//
// Streams are numbered. A Clock has for each stream the number of its
// operations that are known to be over (vector clocks, Fidge 1988, Mattern
// 1988); memory is checked as FastTrack does it (Flanagan and Freund, PLDI
// 2009), by ranges of addresses.
#ifndef RANKWISE_TESTS_VIRTUAL_GPU_ORDERING_H_
#define RANKWISE_TESTS_VIRTUAL_GPU_ORDERING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rankwise::virtual_gpu {

class Clock {
 public:
  uint64_t operator[](int stream) const {
    const auto index = static_cast<size_t>(stream);
    return index < known_.size() ? known_[index] : 0;
  }
  void Set(int stream, uint64_t operation);
  void Join(const Clock& other);

 private:
  std::vector<uint64_t> known_;
};

struct Access {
  const void* start = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

// Not thread-safe.
class AccessTable {
 public:
  // An operation of `stream`, ordered after all that `clock` knows, uses the
  // memory. Returns what it conflicts with, "" if nothing.
  std::string Add(const Access& access, int stream, const Clock& clock,
                  const char* operation);
  // The range is allocated anew: nobody's use of it counts any more.
  void Forget(const void* start, size_t bytes);

 private:
  struct Use {
    int stream = 0;
    uint64_t operation = 0;
    const char* name = "";
  };
  // Of [its key, end).
  struct Range {
    uintptr_t end = 0;
    std::vector<Use> writes;  // at most one
    std::vector<Use> reads;   // since then, at most one for each stream
  };

  void SplitAt(uintptr_t address);

  std::map<uintptr_t, Range> ranges_;
};

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_ORDERING_H_

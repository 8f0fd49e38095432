// The order of a device's operations, and detection of unordered operations on
// the same memory.
//
// Streams are numbered. A Clock has for each stream the number of its
// operations known to be complete (vector clocks: Fidge 1988, Mattern 1988);
// memory is checked like in FastTrack (Flanagan and Freund, PLDI 2009), by
// address ranges.
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
  // Adds an access by an operation of `stream`, ordered after all operations in
  // `clock`. Returns the conflicting operation, or "".
  std::string Add(const Access& access, int stream, const Clock& clock,
                  const char* operation);
  // Removes earlier uses of the range, which is allocated anew.
  void Forget(const void* start, size_t bytes);

 private:
  struct Use {
    int stream = 0;
    uint64_t operation = 0;
    const char* name = "";
  };
  // [key, end)
  struct Range {
    uintptr_t end = 0;
    std::vector<Use> writes;  // at most one
    std::vector<Use> reads;   // since then; at most one per stream
  };

  void SplitAt(uintptr_t address);

  std::map<uintptr_t, Range> ranges_;
};

}  // namespace rankwise::virtual_gpu

#endif  // RANKWISE_TESTS_VIRTUAL_GPU_ORDERING_H_

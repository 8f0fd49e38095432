#include "trainers/checkpoint/checksum.h"

#include <cstring>

namespace rankwise {

void Checksum::Add(const void* data, size_t size_bytes) {
  AddWord(size_bytes);
  const char* next = static_cast<const char*>(data);
  uint64_t word;
  for (; size_bytes >= sizeof(word);
       next += sizeof(word), size_bytes -= sizeof(word)) {
    std::memcpy(&word, next, sizeof(word));
    AddWord(word);
  }
  if (size_bytes == 0) return;
  word = 0;
  std::memcpy(&word, next, size_bytes);
  AddWord(word);
}

}  // namespace rankwise

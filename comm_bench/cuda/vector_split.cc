#include "comm_bench/cuda/vector_split.h"

#include <algorithm>

namespace rankwise::micro {

VectorSplit SplitIntoWords(uintptr_t address, int64_t bytes, int width) {
  const int64_t past = static_cast<int64_t>(address % width);
  VectorSplit split;
  split.head = std::min<int64_t>(bytes, past == 0 ? 0 : width - past);
  split.words = (bytes - split.head) / width;
  split.tail = bytes - split.head - split.words * width;
  return split;
}

int WidestCommonWord(uintptr_t from, uintptr_t to) {
  const uintptr_t apart = from > to ? from - to : to - from;
  int width = kWidestWord;
  while (apart % width != 0) width /= 2;
  return width;
}

}  // namespace rankwise::micro

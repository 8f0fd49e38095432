// How kernels that read whole words get over the ends of a buffer that is not
// aligned to them.
#ifndef RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_
#define RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_

#include <algorithm>
#include <cstdint>

namespace rankwise::micro {

constexpr int kWidestWord = 16;  // bytes that a GPU's thread loads at once

// head + words x width + tail bytes, the words aligned to their width.
struct VectorSplit {
  int64_t head = 0;  // bytes before the first aligned word, less than a word
  int64_t words = 0;
  int64_t tail = 0;  // bytes after the last whole word, less than a word
};

// `width`: a power of 2.
inline VectorSplit SplitIntoWords(uintptr_t address, int64_t bytes, int width) {
  const int64_t past = static_cast<int64_t>(address % width);
  VectorSplit split;
  split.head = std::min<int64_t>(bytes, past == 0 ? 0 : width - past);
  split.words = (bytes - split.head) / width;
  split.tail = bytes - split.head - split.words * width;
  return split;
}

// The widest word, 16 to 1 bytes, that is aligned in both buffers at the same
// places.
inline int WidestCommonWord(uintptr_t from, uintptr_t to) {
  const uintptr_t apart = from > to ? from - to : to - from;
  int width = kWidestWord;
  while (apart % width != 0) width /= 2;
  return width;
}

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_

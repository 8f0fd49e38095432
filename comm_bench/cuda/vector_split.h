// How kernels that read whole words get over the ends of a buffer that is not
// aligned to them.
#ifndef RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_
#define RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_

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
VectorSplit SplitIntoWords(uintptr_t address, int64_t bytes, int width);

// The widest word, 16 to 1 bytes, that is aligned in both buffers at the same
// places.
int WidestCommonWord(uintptr_t from, uintptr_t to);

}  // namespace rankwise::micro

#endif  // RANKWISE_COMM_BENCH_CUDA_VECTOR_SPLIT_H_

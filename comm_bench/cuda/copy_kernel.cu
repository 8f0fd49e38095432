#include "comm_bench/cuda/kernels.h"
#include "comm_bench/cuda/vector_split.h"

namespace rankwise::micro {
namespace {

constexpr int kThreads = 256;
constexpr int kWordsOfThread = 4;
constexpr int64_t kWordsOfBlock = kThreads * kWordsOfThread;

// The first block takes the ends, too: they are shorter than its threads are
// many.
__device__ void CopyEnds(const uint8_t* from, uint8_t* to, int64_t bytes,
                         VectorSplit split) {
  const int64_t thread = threadIdx.x;
  if (thread < split.head) to[thread] = from[thread];
  const int64_t last = bytes - split.tail + thread;
  if (thread < split.tail) to[last] = from[last];
}

// Data that is read and written once need not push other data out of the cache:
// __ldcs and __stcs say so.
template <typename Word>
__global__ void __launch_bounds__(kThreads)
    Copy(const uint8_t* __restrict__ from, uint8_t* __restrict__ to,
         int64_t bytes, VectorSplit split) {
  if (blockIdx.x == 0) CopyEnds(from, to, bytes, split);
  const auto* const source = reinterpret_cast<const Word*>(from + split.head);
  auto* const target = reinterpret_cast<Word*>(to + split.head);
  const int64_t first = blockIdx.x * kWordsOfBlock + threadIdx.x;
  Word words[kWordsOfThread];
#pragma unroll
  for (int i = 0; i < kWordsOfThread; ++i) {
    const int64_t index = first + i * kThreads;
    if (index < split.words) words[i] = __ldcs(source + index);
  }
#pragma unroll
  for (int i = 0; i < kWordsOfThread; ++i) {
    const int64_t index = first + i * kThreads;
    if (index < split.words) __stcs(target + index, words[i]);
  }
}

template <typename Word>
void Launch(const uint8_t* from, uint8_t* to, int64_t bytes,
            CudaStream stream) {
  const VectorSplit split =
      SplitIntoWords(reinterpret_cast<uintptr_t>(from), bytes, sizeof(Word));
  // One block at least, for the ends.
  const int64_t blocks = split.words / kWordsOfBlock + 1;
  Copy<Word><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      from, to, bytes, split);
}

}  // namespace

void LaunchCopy(const uint8_t* from, uint8_t* to, int64_t bytes,
                CudaStream stream) {
  switch (WidestCommonWord(reinterpret_cast<uintptr_t>(from),
                           reinterpret_cast<uintptr_t>(to))) {
    case 16:
      return Launch<uint4>(from, to, bytes, stream);
    case 8:
      return Launch<uint2>(from, to, bytes, stream);
    case 4:
      return Launch<unsigned int>(from, to, bytes, stream);
    case 2:
      return Launch<unsigned short>(from, to, bytes, stream);
    default:
      return Launch<unsigned char>(from, to, bytes, stream);
  }
}

}  // namespace rankwise::micro

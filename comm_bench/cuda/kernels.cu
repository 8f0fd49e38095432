#include "comm_bench/cuda/kernels.h"

#define RANKWISE_TEXT(number) #number
#define RANKWISE_VERSION(major, minor, build) \
  RANKWISE_TEXT(major) "." RANKWISE_TEXT(minor) "." RANKWISE_TEXT(build)

namespace rankwise::micro {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kWordBytes = sizeof(uint4);  // largest load of a thread

constexpr int kWordsOfThread = 4;
constexpr int64_t kWordsOfBlock = kThreads * kWordsOfThread;

// __ldcs and __stcs keep data that is read and written once from evicting other
// data from the cache.
__global__ void __launch_bounds__(kThreads)
    Copy(const uint8_t* __restrict__ from, uint8_t* __restrict__ to,
         int64_t bytes) {
  const auto* const source = reinterpret_cast<const uint4*>(from);
  auto* const target = reinterpret_cast<uint4*>(to);
  const int64_t count = bytes / kWordBytes;
  const int64_t first = blockIdx.x * kWordsOfBlock + threadIdx.x;
  uint4 words[kWordsOfThread];
#pragma unroll
  for (int i = 0; i < kWordsOfThread; ++i) {
    const int64_t index = first + i * kThreads;
    if (index < count) words[i] = __ldcs(source + index);
  }
#pragma unroll
  for (int i = 0; i < kWordsOfThread; ++i) {
    const int64_t index = first + i * kThreads;
    if (index < count) __stcs(target + index, words[i]);
  }
  // Rest after the last whole word.
  const int64_t last = count * kWordBytes + first;
  if (blockIdx.x == 0 && last < bytes) to[last] = from[last];
}

// Sums: following M. Harris, "Optimizing Parallel Reduction in CUDA" (NVIDIA),
// and the warp shuffles of the CUDA C++ Programming Guide.

constexpr int kWarp = 32;
constexpr int kBlocksOfMultiprocessor = 4;
constexpr int kWordsUnderWay = 4;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ float AsFloat(float value) { return value; }
// A bfloat16 is the upper half of a float.
__device__ float AsFloat(uint16_t bits) {
  return __uint_as_float(static_cast<unsigned>(bits) << 16);
}

__device__ float SumOfPair(unsigned bits, float) {
  return __uint_as_float(bits);
}
__device__ float SumOfPair(unsigned bits, uint16_t) {
  return __uint_as_float(bits << 16) + __uint_as_float(bits & 0xffff0000u);
}

// Sums the values of type Value in a word.
template <typename Value>
__device__ float SumOfWord(uint4 word) {
  return (SumOfPair(word.x, Value{}) + SumOfPair(word.y, Value{})) +
         (SumOfPair(word.z, Value{}) + SumOfPair(word.w, Value{}));
}

__device__ float SumOfWarp(float value) {
  for (int apart = kWarp / 2; apart > 0; apart /= 2)
    value += __shfl_down_sync(kAllLanes, value, apart);
  return value;
}

// The result is in thread 0; called once by all kThreads threads of a block.
__device__ float SumOfBlock(float value) {
  __shared__ float warps[kThreads / kWarp];
  value = SumOfWarp(value);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  return SumOfWarp(threadIdx.x < kThreads / kWarp ? warps[threadIdx.x] : 0);
}

// Returns this thread's part of the grid's sum; several loads are in flight
// before the first is used.
template <typename Value>
__device__ float SumOfWords(const uint4* words, int64_t count, int64_t thread,
                            int64_t threads) {
  float sums[kWordsUnderWay] = {};
  int64_t i = thread;
  for (; i + (kWordsUnderWay - 1) * threads < count;
       i += kWordsUnderWay * threads) {
    uint4 loaded[kWordsUnderWay];
#pragma unroll
    for (int k = 0; k < kWordsUnderWay; ++k)
      loaded[k] = __ldcs(words + i + k * threads);
#pragma unroll
    for (int k = 0; k < kWordsUnderWay; ++k)
      sums[k] += SumOfWord<Value>(loaded[k]);
  }
  for (; i < count; i += threads) sums[0] += SumOfWord<Value>(words[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// First pass: one sum per block.
template <typename Value>
__global__ void __launch_bounds__(kThreads, kBlocksOfMultiprocessor)
    SumToBlocks(const Value* __restrict__ values, int64_t count,
                float* __restrict__ scratch) {
  constexpr int64_t kValuesOfWord = kWordBytes / sizeof(Value);
  const int64_t thread =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t threads = static_cast<int64_t>(gridDim.x) * kThreads;
  const int64_t words = count / kValuesOfWord;
  float sum = SumOfWords<Value>(reinterpret_cast<const uint4*>(values), words,
                                thread, threads);
  // Rest after the last whole word.
  const int64_t last = words * kValuesOfWord + thread;
  if (last < count) sum += AsFloat(values[last]);
  sum = SumOfBlock(sum);
  if (threadIdx.x == 0) scratch[blockIdx.x] = sum;
}

// Second pass: one block.
__global__ void __launch_bounds__(kThreads)
    SumBlockSums(const float* __restrict__ scratch, int blocks,
                 float* __restrict__ sum) {
  float mine = 0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) mine += scratch[i];
  mine = SumOfBlock(mine);
  if (threadIdx.x == 0) *sum = mine;
}

template <typename Value>
void StartSum(const Value* values, int64_t count, int blocks, float* scratch,
              float* sum, CudaStream stream) {
  SumToBlocks<<<blocks, kThreads, 0, stream>>>(values, count, scratch);
  SumBlockSums<<<1, kThreads, 0, stream>>>(scratch, blocks, sum);
}

__global__ void Tick(int32_t* count) {
  if (count != nullptr) ++*count;
}

__global__ void Hold(int64_t cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void Nothing() {}

}  // namespace

void LaunchCopy(const uint8_t* from, uint8_t* to, int64_t bytes,
                CudaStream stream) {
  // At least one block, for the rest after the last whole word.
  const int64_t blocks = bytes / kWordBytes / kWordsOfBlock + 1;
  Copy<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(from, to, bytes);
}

int SumBlocks(int multiprocessors) {
  return multiprocessors * kBlocksOfMultiprocessor;
}

void LaunchSum(const float* values, int64_t count, int blocks, float* scratch,
               float* sum, CudaStream stream) {
  StartSum(values, count, blocks, scratch, sum, stream);
}

void LaunchSumOfBfloat16(const uint16_t* values, int64_t count, int blocks,
                         float* scratch, float* sum, CudaStream stream) {
  StartSum(values, count, blocks, scratch, sum, stream);
}

void LaunchTick(int32_t* count, CudaStream stream) {
  Tick<<<1, 1, 0, stream>>>(count);
}

void LaunchHold(int64_t cycles, CudaStream stream) {
  Hold<<<1, 1, 0, stream>>>(cycles);
}

const char* NvccVersion() {
  return RANKWISE_VERSION(__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__,
                          __CUDACC_VER_BUILD__);
}

int KernelArchitecture() {
  cudaFuncAttributes attributes = {};
  if (cudaFuncGetAttributes(&attributes, Nothing) != cudaSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  return attributes.binaryVersion;
}

}  // namespace rankwise::micro

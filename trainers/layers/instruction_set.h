// Loops compiled for several instruction sets, chosen at run time.
#ifndef RANKWISE_TRAINERS_LAYERS_INSTRUCTION_SET_H_
#define RANKWISE_TRAINERS_LAYERS_INSTRUCTION_SET_H_

#include <type_traits>

namespace rankwise {

// For functions called in loops: their callers compile them anew.
#define RANKWISE_INLINE_LOOP [[gnu::always_inline]] inline

// Number of floats in a vector register.
template <int kFloats>
using Lanes = std::integral_constant<int, kFloats>;

#if defined(__x86_64__)

// The parts of x86-64-v4 and v3 that the loops use.
inline bool HasAvx512() {
  return __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
// Whether the CPU has dot products of bf16 pairs.
inline bool HasBf16Pairs() {
  return HasAvx512() && __builtin_cpu_supports("avx512bf16");
}
inline bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#define RANKWISE_AVX512 \
  "avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512"

// For functions that use such dot products by intrinsics, which the compiler
// inlines only into these. Call them only if HasBf16Pairs().
#define RANKWISE_BF16_PAIRS [[gnu::target(RANKWISE_AVX512 ",avx512bf16")]]

template <typename Loop>
[[gnu::target(RANKWISE_AVX512)]] void RunWithAvx512(const Loop& loop) {
  loop(Lanes<16>());
}

template <typename Loop>
[[gnu::target("avx2,fma")]] void RunWithAvx2(const Loop& loop) {
  loop(Lanes<8>());
}

// Calls `loop(Lanes<...>())`, a lambda that is always inlined, as compiled for
// the best instruction set available: x86-64-v4, v3 or the baseline.
// (target_clones would use ifunc, which runs before sanitizers are ready.)
template <typename Loop>
void RunLoop(const Loop& loop) {
  if (HasAvx512()) return RunWithAvx512(loop);
  if (HasAvx2()) return RunWithAvx2(loop);
  loop(Lanes<4>());
}

#else

inline bool HasBf16Pairs() { return false; }

template <typename Loop>
void RunLoop(const Loop& loop) {
  loop(Lanes<4>());
}

#endif

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_INSTRUCTION_SET_H_

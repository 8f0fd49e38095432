// Loops compiled for several instruction sets, of which the processor that the
// program runs on decides.
#ifndef RANKWISE_TRAINERS_LAYERS_INSTRUCTION_SET_H_
#define RANKWISE_TRAINERS_LAYERS_INSTRUCTION_SET_H_

#include <type_traits>

namespace rankwise {

// For the functions of which loops consist: their callers compile them anew.
#define RANKWISE_INLINE_LOOP [[gnu::always_inline]] inline

// How many floats a vector register has.
template <int kFloats>
using Lanes = std::integral_constant<int, kFloats>;

#if defined(__x86_64__)

// x86-64-v4 and v3, as far as loops here use them.
inline bool HasAvx512() {
  return __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}
// Dot products of pairs of bf16 numbers.
inline bool HasBf16Pairs() {
  return HasAvx512() && __builtin_cpu_supports("avx512bf16");
}
inline bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#define RANKWISE_AVX512 \
  "avx512f,avx512bw,avx512dq,avx512vl,fma,prefer-vector-width=512"

// For functions that take such dot products by intrinsics, which the compiler
// inlines into none but these. Call them only where HasBf16Pairs() holds.
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
// the best instruction set here: x86-64-v4, v3 or the baseline. (target_clones
// would do so by ifunc, which runs before sanitizers are ready.)
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

// Pairs of bf16 numbers for a processor's dot products: one instruction
// multiplies 16 pairs by 16 others and adds both products of each to an fp32
// sum, twice the work of its fp32 counterpart.
#ifndef RANKWISE_TRAINERS_LAYERS_BF16_PAIRS_H_
#define RANKWISE_TRAINERS_LAYERS_BF16_PAIRS_H_

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "trainers/layers/instruction_set.h"

namespace rankwise {

// Two bf16 numbers, the first in the lower half.
using Pair = int32_t;

// Loads 16 consecutive pairs.
RANKWISE_BF16_PAIRS inline __m512bh LoadPairs(const void* pairs) {
  return reinterpret_cast<__m512bh>(_mm512_loadu_si512(pairs));
}

RANKWISE_BF16_PAIRS inline __m512bh RepeatPair(Pair pair) {
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

}  // namespace rankwise

#endif

#endif  // RANKWISE_TRAINERS_LAYERS_BF16_PAIRS_H_

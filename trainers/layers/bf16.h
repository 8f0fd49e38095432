// bf16 numbers as 16-bit integers, in loops that are compiled to vectors.
#ifndef RANKWISE_TRAINERS_LAYERS_BF16_H_
#define RANKWISE_TRAINERS_LAYERS_BF16_H_

#include <bit>
#include <cstdint>

#include "trainers/layers/instruction_set.h"

namespace rankwise {

using Bf16Bits = uint16_t;

RANKWISE_INLINE_LOOP float FromBf16(Bf16Bits x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x) << 16);
}

// Rounds to nearest, ties to even.
RANKWISE_INLINE_LOOP Bf16Bits ToBf16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
  return static_cast<Bf16Bits>(x != x ? 0x7FC0 : rounded);
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_BF16_H_

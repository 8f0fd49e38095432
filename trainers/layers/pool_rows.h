// ReLU and 2x2 max pooling of two rows of pixels, forward and backward: the
// loops of layers that pool. Channels-last: [columns, channels] per row.
#ifndef RANKWISE_TRAINERS_LAYERS_POOL_ROWS_H_
#define RANKWISE_TRAINERS_LAYERS_POOL_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "trainers/layers/instruction_set.h"

namespace rankwise {

// Index, rows first, of the one of a channel's four inputs that became its
// output; or kNone if no input is above zero.
using Choice = uint8_t;
inline constexpr int kNone = 4;

// Floats as integers of equal size, whose order is that of positive floats and
// whose sign is that of the floats.
struct Fp32 {
  using Bits = int32_t;
  static constexpr Bits kInfinity = 0x7F800000;
};
struct Bf16 {
  using Bits = int16_t;
  static constexpr Bits kInfinity = 0x7F80;
};
struct Fp16 {
  using Bits = int16_t;
  static constexpr Bits kInfinity = 0x7C00;
};

// Replaces every NaN by the largest of them.
template <typename Float>
RANKWISE_INLINE_LOOP typename Float::Bits Ordered(typename Float::Bits bits) {
  constexpr auto kLargest = std::numeric_limits<typename Float::Bits>::max();
  return (bits & kLargest) > Float::kInfinity ? kLargest : bits;
}

// Pools two consecutive rows of `columns` inputs to one of outputs.
template <typename Float, typename Bits = typename Float::Bits>
RANKWISE_INLINE_LOOP void PoolRows(const Bits* __restrict in, int64_t columns,
                                   int64_t channels, Bits* __restrict out,
                                   Choice* __restrict choices) {
  for (int64_t column = 0; column < columns / 2; ++column) {
    const Bits* const upper = in + 2 * column * channels;
    const Bits* const lower = upper + columns * channels;
    Bits* const to = out + column * channels;
    Choice* const choice = choices + column * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const Bits x0 = Ordered<Float>(upper[c]);
      const Bits x1 = Ordered<Float>(upper[c + channels]);
      const Bits x2 = Ordered<Float>(lower[c]);
      const Bits x3 = Ordered<Float>(lower[c + channels]);
      const Bits largest = std::max(std::max(x0, x1), std::max(x2, x3));
      Bits from = x2 == largest ? 2 : 3;
      from = x1 == largest ? 1 : from;
      from = x0 == largest ? 0 : from;
      to[c] = largest > 0 ? largest : 0;
      choice[c] = static_cast<Choice>(largest > 0 ? from : kNone);
    }
  }
}

// Maps the gradient of a row of outputs to those of two rows of inputs.
template <typename Bits>
RANKWISE_INLINE_LOOP void UnpoolRows(const Bits* __restrict gradient,
                                     const Choice* __restrict choices,
                                     int64_t columns, int64_t channels,
                                     Bits* __restrict to) {
  for (int64_t column = 0; column < columns / 2; ++column) {
    const Bits* const from = gradient + column * channels;
    const Choice* const choice = choices + column * channels;
    Bits* const upper = to + 2 * column * channels;
    Bits* const lower = upper + columns * channels;
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c) {
      const Bits chosen = choice[c];
      upper[c] = chosen == 0 ? from[c] : 0;
      upper[c + channels] = chosen == 1 ? from[c] : 0;
      lower[c] = chosen == 2 ? from[c] : 0;
      lower[c + channels] = chosen == 3 ? from[c] : 0;
    }
  }
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_POOL_ROWS_H_

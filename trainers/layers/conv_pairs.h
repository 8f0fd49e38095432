// The loops of conv_rows.h in bf16 by dot products of pairs. The bits of a bf16
// number in fp32 are the pair of zero and this number.
//
// The products are those of conv_rows.h, added in another order. One more
// difference: the dot product and the rounding to bf16 treat numbers below the
// smallest normal one (1.2e-38) as zero.
#ifndef RANKWISE_TRAINERS_LAYERS_CONV_PAIRS_H_
#define RANKWISE_TRAINERS_LAYERS_CONV_PAIRS_H_

#include <bit>
#include <cstdint>
#include <limits>

#include "trainers/layers/bf16_pairs.h"
#include "trainers/layers/conv_rows.h"
#include "trainers/layers/instruction_set.h"
#include "trainers/layers/pool_rows.h"

namespace rankwise {

// bf16 numbers if HasBf16Pairs().
struct Bf16Pairs : Bf16 {};

#if defined(__x86_64__)

constexpr int kPairs = 16;  // of a vector register
static_assert(kChannels == 2 * kPairs);

// Returns the pair of two bf16 numbers given in fp32.
RANKWISE_INLINE_LOOP Pair PairOf(float first, float second) {
  return static_cast<Pair>(std::bit_cast<uint32_t>(first) >> 16 |
                           std::bit_cast<uint32_t>(second));
}

// Pairs each number of a padded image with the one `distance` after it.
RANKWISE_INLINE_LOOP void PairImage(const float* __restrict padded,
                                    int64_t distance, const ConvShape& shape,
                                    Pair* __restrict pairs) {
  const int64_t values = shape.padded_image() - distance;
#pragma omp simd
  for (int64_t i = 0; i < values; ++i)
    pairs[i] = PairOf(padded[i], padded[i + distance]);
}

// The taps 2j and 2j + 1 of each row of the kernel. The last tap is left over:
// it and its input are paired with zero, as zero times the next input would be
// NaN if that is infinite.
constexpr int kTapPairs = (kTaps + 1) / 2;
using PairedWeights = Pair[kKernel][kTapPairs][kChannels];

// From weights laid out as in ConvRows.
RANKWISE_INLINE_LOOP void PairWeights(const float* weights,
                                      PairedWeights& pairs) {
  for (int k = 0; k < kKernel; ++k) {
    for (int tap = 0; tap < kTaps; tap += 2) {
      const float* const first = weights + (k * kTaps + tap) * kChannels;
      for (int c = 0; c < kChannels; ++c) {
        pairs[k][tap / 2][c] = tap + 1 < kTaps
                                   ? PairOf(first[c], first[c + kChannels])
                                   : PairOf(0.0f, first[c]);
      }
    }
  }
}

// PoolRows for all channels of one output, from its four inputs.
RANKWISE_BF16_PAIRS inline void PoolPixel(__m512i (&in)[4], int16_t* out,
                                          Choice* choices) {
  const __m512i nan = _mm512_set1_epi16(std::numeric_limits<Bf16::Bits>::max());
  const __m512i infinity = _mm512_set1_epi16(Bf16::kInfinity);
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 4
  for (__m512i& x : in) {
    const __mmask32 is_nan =
        _mm512_cmpgt_epi16_mask(_mm512_and_si512(x, nan), infinity);
    x = _mm512_mask_mov_epi16(x, is_nan, nan);
    largest = _mm512_max_epi16(largest, x);
  }
  __m256i from = _mm256_set1_epi8(3);
#pragma GCC unroll 3
  for (int i = 2; i >= 0; --i) {
    from = _mm256_mask_mov_epi8(from, _mm512_cmpeq_epi16_mask(in[i], largest),
                                _mm256_set1_epi8(static_cast<char>(i)));
  }
  from = _mm256_mask_mov_epi8(from, _mm512_testn_epi16_mask(largest, largest),
                              _mm256_set1_epi8(kNone));
  _mm512_storeu_si512(out, largest);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(choices), from);
}

// Computes one row of y from four rows of padded input, given also as pairs of
// neighbours: ConvRows and PoolRows on a tile of two rows in registers.
RANKWISE_BF16_PAIRS inline void ConvAndPoolRow(const float* in,
                                               const Pair* in_pairs,
                                               const ConvShape& shape,
                                               const PairedWeights& weights,
                                               const float* bias, int16_t* y,
                                               Choice* choices) {
  constexpr int kTile = 4;  // columns
  for (int64_t column = 0; column < shape.columns; column += kTile) {
    __m512 sums[2][kTile][2];
#pragma GCC unroll 8
    for (int i = 0; i < 2 * kTile; ++i) {
      sums[i / kTile][i % kTile][0] = _mm512_loadu_ps(bias);
      sums[i / kTile][i % kTile][1] = _mm512_loadu_ps(bias + kPairs);
    }
    for (int k = 0; k < kKernel; ++k) {
#pragma GCC unroll 5
      for (int pair = 0; pair < kTapPairs; ++pair) {
        const __m512bh weight0 = LoadPairs(weights[k][pair]);
        const __m512bh weight1 = LoadPairs(weights[k][pair] + kPairs);
#pragma GCC unroll 8
        for (int i = 0; i < 2 * kTile; ++i) {
          const int row = i / kTile, at = i % kTile;
          const int64_t tap =
              (row + k) * shape.padded_row() + (column + at) * kIn + 2 * pair;
          const __m512bh x =
              RepeatPair(2 * pair + 1 < kTaps ? in_pairs[tap]
                                              : std::bit_cast<Pair>(in[tap]));
          sums[row][at][0] = _mm512_dpbf16_ps(sums[row][at][0], weight0, x);
          sums[row][at][1] = _mm512_dpbf16_ps(sums[row][at][1], weight1, x);
        }
      }
    }
#pragma GCC unroll 2
    for (int at = 0; at < kTile; at += 2) {
      __m512i rounded[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512(&sum)[2] = sums[i / 2][at + i % 2];
        rounded[i] =
            reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(sum[1], sum[0]));
      }
      const int64_t to = (column + at) / 2 * kChannels;
      PoolPixel(rounded, y + to, choices + to);
    }
  }
}

// The same for all `lanes`: RunLoop does not distinguish these instructions.
template <int kFloats>
RANKWISE_BF16_PAIRS void ForwardImage(Lanes<kFloats> /*lanes*/,
                                      const ForwardPass<Bf16Pairs>& pass,
                                      const ConvShape& shape, int64_t image,
                                      const Scratch& scratch) {
  auto* const pairs = reinterpret_cast<Pair*>(scratch.pairs);
  Pad(pass.x, image, shape, scratch.padded);
  PairImage(scratch.padded, 1, shape, pairs);
  PairedWeights weights;
  PairWeights(pass.weights, weights);
  for (int64_t row = 0; row < shape.rows; row += 2) {
    const int64_t from = row * shape.padded_row();
    const int64_t to = (image * shape.rows + row) / 2 * shape.pooled_row();
    ConvAndPoolRow(scratch.padded + from, pairs + from, shape, weights,
                   pass.bias, pass.y + to, pass.choices + to);
  }
}

// Maps a row of y's gradient to that of two rows of the convolution's outputs,
// as pairs of a channel's horizontal neighbours [2, columns / 2, channels], and
// adds it to the bias's gradient.
RANKWISE_BF16_PAIRS inline void UnpoolPairs(const int16_t* dy,
                                            const Choice* choices,
                                            int64_t values, Pair* pairs,
                                            float* dbias) {
  for (int64_t c = 0; c < kChannels; c += kPairs) {
    __m512 sum = _mm512_loadu_ps(dbias + c);
    for (int64_t i = c; i < values; i += kChannels) {
      const __m128i choice =
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(choices + i));
      const __mmask16 any = _mm_cmpneq_epi8_mask(choice, _mm_set1_epi8(kNone));
      const __m512i first = _mm512_maskz_cvtepu16_epi32(
          any, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(dy + i)));
      const __m512i second = _mm512_maskz_slli_epi32(any, first, 16);
      sum = _mm512_add_ps(sum, _mm512_castsi512_ps(second));
#pragma GCC unroll 2
      for (int row = 0; row < 2; ++row) {
        const auto chosen = static_cast<char>(2 * row);
        const __mmask16 is_first =
            _mm_cmpeq_epi8_mask(choice, _mm_set1_epi8(chosen));
        const __mmask16 is_second =
            _mm_cmpeq_epi8_mask(choice, _mm_set1_epi8(chosen + 1));
        _mm512_storeu_si512(
            pairs + row * values + i,
            _mm512_mask_mov_epi32(_mm512_maskz_mov_epi32(is_first, first),
                                  is_second, second));
      }
    }
    _mm512_storeu_ps(dbias + c, sum);
  }
}

// WeightGradientRows from pairs of horizontal neighbours, of an input channel
// and of an output channel.
RANKWISE_BF16_PAIRS inline void WeightGradientRows(const Pair* in,
                                                   const Pair* gradient,
                                                   const ConvShape& shape,
                                                   float* weight_gradient) {
  for (int k = 0; k < kKernel; ++k) {
    float* const to = weight_gradient + k * kTaps * kChannels;
    __m512 sums[kTaps][2];
#pragma GCC unroll 9
    for (int tap = 0; tap < kTaps; ++tap) {
      sums[tap][0] = _mm512_loadu_ps(to + tap * kChannels);
      sums[tap][1] = _mm512_loadu_ps(to + tap * kChannels + kPairs);
    }
    const Pair* dy = gradient;
    for (int64_t row = 0; row < 2; ++row) {
      const Pair* x = in + (row + k) * shape.padded_row();
      for (int64_t column = 0; column < shape.columns; column += 2) {
        const __m512bh dy0 = LoadPairs(dy), dy1 = LoadPairs(dy + kPairs);
#pragma GCC unroll 9
        for (int tap = 0; tap < kTaps; ++tap) {
          const __m512bh pair = RepeatPair(x[tap]);
          sums[tap][0] = _mm512_dpbf16_ps(sums[tap][0], dy0, pair);
          sums[tap][1] = _mm512_dpbf16_ps(sums[tap][1], dy1, pair);
        }
        x += 2 * kIn;
        dy += kChannels;
      }
    }
#pragma GCC unroll 9
    for (int tap = 0; tap < kTaps; ++tap) {
      _mm512_storeu_ps(to + tap * kChannels, sums[tap][0]);
      _mm512_storeu_ps(to + tap * kChannels + kPairs, sums[tap][1]);
    }
  }
}

template <int kFloats>
RANKWISE_BF16_PAIRS void BackwardImage(Lanes<kFloats> /*lanes*/,
                                       const BackwardPass<Bf16Pairs>& pass,
                                       const ConvShape& shape, int64_t image,
                                       const Scratch& scratch, int64_t thread) {
  auto* const pairs = reinterpret_cast<Pair*>(scratch.pairs);
  auto* const gradient = reinterpret_cast<Pair*>(scratch.rows);
  Pad(pass.x, image, shape, scratch.padded);
  PairImage(scratch.padded, kIn, shape, pairs);
  for (int64_t row = 0; row < shape.rows; row += 2) {
    const int64_t from = (image * shape.rows + row) / 2 * shape.pooled_row();
    UnpoolPairs(pass.dy + from, pass.choices + from, shape.pooled_row(),
                gradient, pass.dbias + thread * kChannels);
    WeightGradientRows(pairs + row * shape.padded_row(), gradient, shape,
                       pass.dweights + thread * kWeights * kChannels);
  }
}

#endif

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_CONV_PAIRS_H_

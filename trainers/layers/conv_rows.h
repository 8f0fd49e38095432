// A 3x3 convolution of images of 3 channels, and the gradient of its weights,
// two rows of outputs at a time: small enough for a core's first-level cache.
// Channels-last. Loops with constant bounds are unrolled, so that the compiler
// keeps sums in registers.
#ifndef RANKWISE_TRAINERS_LAYERS_CONV_ROWS_H_
#define RANKWISE_TRAINERS_LAYERS_CONV_ROWS_H_

#include <bit>
#include <cstdint>

#include "trainers/layers/bf16.h"
#include "trainers/layers/instruction_set.h"
#include "trainers/layers/pool_rows.h"

namespace rankwise {

constexpr int kIn = 3, kKernel = 3;   // input channels; kernel rows and columns
constexpr int kTaps = kKernel * kIn;  // of one row of the kernel
constexpr int kWeights = kKernel * kTaps;  // of one output channel
constexpr int kChannels = 32;              // of the output
constexpr int kColumns = 8;                // columns must be a multiple of this

// Shape of the convolution's output.
struct ConvShape {
  int64_t examples, rows, columns;

  int64_t padded_row() const { return (columns + 2) * kIn; }
  int64_t padded_image() const { return (rows + 2) * padded_row(); }
  int64_t two_rows() const { return 2 * columns * kChannels; }
  int64_t pooled_row() const { return columns / 2 * kChannels; }
};

// Unaligned, in memory that may have another type.
template <int kFloats>
struct VectorOf {
  using Type
      [[gnu::vector_size(4 * kFloats), gnu::aligned(4), gnu::may_alias]] =
          float;
};

// Computes two rows of outputs [2, columns, channels] from four rows of padded
// input. weights [kernel row, tap, channels]. Keeps a tile of columns and
// channels at a time in registers.
template <int kFloats>
RANKWISE_INLINE_LOOP void ConvRows(const float* in, const ConvShape& shape,
                                   const float* weights, const float* bias,
                                   float* out) {
  using Vector = typename VectorOf<kFloats>::Type;
  constexpr int kTile = kFloats == 16 ? 8 : 4, kVectors = 2;
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < shape.columns; column += kTile) {
      for (int64_t c = 0; c < kChannels; c += kVectors * kFloats) {
        Vector sums[kTile][kVectors];
#pragma GCC unroll 16
        for (int i = 0; i < kTile; ++i) {
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v)
            sums[i][v] =
                *reinterpret_cast<const Vector*>(bias + c + v * kFloats);
        }
        for (int k = 0; k < kKernel; ++k) {
          const float* x = in + (row + k) * shape.padded_row() + column * kIn;
          const float* weight = weights + k * kTaps * kChannels + c;
#pragma GCC unroll 9
          for (int tap = 0; tap < kTaps; ++tap) {
            Vector w[kVectors];
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) {
              w[v] = *reinterpret_cast<const Vector*>(weight + tap * kChannels +
                                                      v * kFloats);
            }
#pragma GCC unroll 16
            for (int i = 0; i < kTile; ++i) {
#pragma GCC unroll 2
              for (int v = 0; v < kVectors; ++v)
                sums[i][v] += x[i * kIn + tap] * w[v];
            }
          }
        }
        float* const to = out + (row * shape.columns + column) * kChannels + c;
#pragma GCC unroll 16
        for (int i = 0; i < kTile; ++i) {
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v)
            *reinterpret_cast<Vector*>(to + i * kChannels + v * kFloats) =
                sums[i][v];
        }
      }
    }
  }
}

// Adds the contribution of two rows of output gradients and four rows of padded
// input to the gradient of weights, laid out as in ConvRows.
template <int kFloats>
RANKWISE_INLINE_LOOP void WeightGradientRows(const float* in,
                                             const float* gradient,
                                             const ConvShape& shape,
                                             float* weight_gradient) {
  using Vector = typename VectorOf<kFloats>::Type;
  constexpr int kVectors = kFloats == 16 ? 2 : 1;
  for (int k = 0; k < kKernel; ++k) {
    for (int64_t c = 0; c < kChannels; c += kVectors * kFloats) {
      Vector sums[kTaps][kVectors];
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sums[tap][v] = Vector{};
      }
      for (int64_t row = 0; row < 2; ++row) {
        const float* x = in + (row + k) * shape.padded_row();
        const float* dy = gradient + row * shape.columns * kChannels + c;
        for (int64_t column = 0; column < shape.columns; ++column) {
          Vector g[kVectors];
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v)
            g[v] = *reinterpret_cast<const Vector*>(dy + v * kFloats);
#pragma GCC unroll 9
          for (int tap = 0; tap < kTaps; ++tap) {
#pragma GCC unroll 2
            for (int v = 0; v < kVectors; ++v) sums[tap][v] += x[tap] * g[v];
          }
          x += kIn;
          dy += kChannels;
        }
      }
      float* const to = weight_gradient + k * kTaps * kChannels + c;
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v)
          *reinterpret_cast<Vector*>(to + tap * kChannels + v * kFloats) +=
              sums[tap][v];
      }
    }
  }
}

RANKWISE_INLINE_LOOP float ToFloat(int32_t bits) {
  return std::bit_cast<float>(bits);
}
RANKWISE_INLINE_LOOP float ToFloat(int16_t bf16) {
  return FromBf16(static_cast<Bf16Bits>(bf16));
}

// A thread's memory for one image, plain and as pairs, two rows of outputs, and
// half as many numbers: pooled, or in 16 bits.
struct Scratch {
  static int64_t Floats(const ConvShape& shape) {
    return 2 * shape.padded_image() + shape.two_rows() + shape.two_rows() / 2;
  }
  // `floats` are Floats(shape) zeros.
  Scratch(float* floats, const ConvShape& shape)
      : padded(floats),
        pairs(padded + shape.padded_image()),
        rows(pairs + shape.padded_image()),
        half(rows + shape.two_rows()) {}

  float* const padded;
  float* const pairs;
  float* const rows;
  float* const half;
};

// Copies image `index` into the middle of `padded`; its border stays zero.
template <typename Bits>
RANKWISE_INLINE_LOOP void Pad(const Bits* __restrict images, int64_t index,
                              const ConvShape& shape,
                              float* __restrict padded) {
  const int64_t row_values = shape.columns * kIn;
  for (int64_t row = 0; row < shape.rows; ++row) {
    const Bits* const from = images + (index * shape.rows + row) * row_values;
    float* const to = padded + (row + 1) * shape.padded_row() + kIn;
#pragma omp simd
    for (int64_t i = 0; i < row_values; ++i) to[i] = ToFloat(from[i]);
  }
}

// Float: Fp32 or Bf16, the type of x, y and their gradients; all [B, H, W, C].
template <typename Float>
struct ForwardPass {
  const typename Float::Bits* x;
  const float* weights;  // as in ConvRows
  const float* bias;
  typename Float::Bits* y;
  Choice* choices;
};

// Pools in fp32.
RANKWISE_INLINE_LOOP void PoolConvRows(const Scratch& scratch,
                                       const ConvShape& shape,
                                       int32_t* __restrict y,
                                       Choice* __restrict choices) {
  PoolRows<Fp32>(reinterpret_cast<const int32_t*>(scratch.rows), shape.columns,
                 kChannels, y, choices);
}

// Pools in bf16, to which a convolution rounds its output.
RANKWISE_INLINE_LOOP void PoolConvRows(const Scratch& scratch,
                                       const ConvShape& shape,
                                       int16_t* __restrict y,
                                       Choice* __restrict choices) {
  const float* const rows = scratch.rows;
  auto* const rounded = reinterpret_cast<int16_t*>(scratch.half);
  const int64_t values = shape.two_rows();
#pragma omp simd
  for (int64_t i = 0; i < values; ++i)
    rounded[i] = static_cast<int16_t>(ToBf16(rows[i]));
  PoolRows<Bf16>(rounded, shape.columns, kChannels, y, choices);
}

template <typename Float, int kFloats>
RANKWISE_INLINE_LOOP void ForwardImage(Lanes<kFloats> /*lanes*/,
                                       const ForwardPass<Float>& pass,
                                       const ConvShape& shape, int64_t image,
                                       const Scratch& scratch) {
  Pad(pass.x, image, shape, scratch.padded);
  for (int64_t row = 0; row < shape.rows; row += 2) {
    ConvRows<kFloats>(scratch.padded + row * shape.padded_row(), shape,
                      pass.weights, pass.bias, scratch.rows);
    const int64_t to = (image * shape.rows + row) / 2 * shape.pooled_row();
    PoolConvRows(scratch, shape, pass.y + to, pass.choices + to);
  }
}

template <typename Float>
struct BackwardPass {
  const typename Float::Bits* dy;
  const typename Float::Bits* x;
  const Choice* choices;
  float* dweights;  // per thread, as in ConvRows
  float* dbias;     // per thread [channels]
};

// Converts a row of y's gradient to fp32, and adds it to the bias's gradient.
template <typename Bits>
RANKWISE_INLINE_LOOP void BiasGradientRow(const Bits* __restrict dy,
                                          const Choice* __restrict choices,
                                          int64_t values,
                                          float* __restrict in_fp32,
                                          float* __restrict dbias) {
  for (int64_t i = 0; i < values; i += kChannels) {
#pragma omp simd
    for (int64_t c = 0; c < kChannels; ++c) {
      const float value = ToFloat(dy[i + c]);
      in_fp32[i + c] = value;
      dbias[c] += choices[i + c] == kNone ? 0.0f : value;
    }
  }
}

// Adds an image's contribution to the thread's gradients.
template <typename Float, int kFloats>
RANKWISE_INLINE_LOOP void BackwardImage(Lanes<kFloats> /*lanes*/,
                                        const BackwardPass<Float>& pass,
                                        const ConvShape& shape, int64_t image,
                                        const Scratch& scratch,
                                        int64_t thread) {
  Pad(pass.x, image, shape, scratch.padded);
  for (int64_t row = 0; row < shape.rows; row += 2) {
    const int64_t from = (image * shape.rows + row) / 2 * shape.pooled_row();
    const Choice* const choices = pass.choices + from;
    BiasGradientRow(pass.dy + from, choices, shape.pooled_row(), scratch.half,
                    pass.dbias + thread * kChannels);
    UnpoolRows(reinterpret_cast<const int32_t*>(scratch.half), choices,
               shape.columns, kChannels,
               reinterpret_cast<int32_t*>(scratch.rows));
    WeightGradientRows<kFloats>(scratch.padded + row * shape.padded_row(),
                                scratch.rows, shape,
                                pass.dweights + thread * kWeights * kChannels);
  }
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_CONV_ROWS_H_

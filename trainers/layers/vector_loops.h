// The numeric loops of these layers, compiled for several instruction sets; the
// best one that the CPU has is chosen when a program starts. Independent of
// torch: pointers to fp32 values, or to bf16 values as their 16 bits. Values
// that are not finite propagate as in ATen's loops.
#ifndef RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_
#define RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_

#include <cstdint>
#include <vector>

#include "trainers/layers/bf16.h"

namespace rankwise {

// A tile of attention's scores or their gradients, row by row.
struct ScoreTile {
  int64_t rows = 0, columns = 0;
  int64_t stride = 0;  // between rows of the input
  // Values per row of the output: `columns` values, then zeros.
  int64_t padded_columns = 0;
  int64_t out_stride = 0;
  float scale = 0;  // of the scores, before softmax
};

// RMS normalisation of n values per row, y = x * inverse_rms * weight, where
// inverse_rms = 1 / sqrt(mean(x^2) + epsilon) of each row.
template <typename X, typename Y>
struct RmsNormLoops {
  void (*forward)(const X* x, const float* weight, float epsilon, int64_t rows,
                  int64_t n, Y* y, float* inverse_rms);
  // Adds the gradient of the weight, summed over rows, to dweight.
  void (*backward)(const Y* dy, const X* x, const float* weight,
                   const float* inverse_rms, int64_t rows, int64_t n, X* dx,
                   float* dweight);
};

template <typename T>
struct VectorLoops {
  // y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
  void (*gelu)(const T* x, T* y, int64_t n);
  // dx = dy times the derivative at x.
  void (*gelu_backward)(const T* dy, const T* x, T* dx, int64_t n);

  // Softmax of the first `visible` columns of the first row, and of
  // `more_visible` more in each later row; the other columns' weights are 0.
  // log_sum_exps: of each row's scaled scores. Overwrites `scores`.
  void (*softmax)(const ScoreTile& tile, int64_t visible, int64_t more_visible,
                  float* scores, T* weights, float* log_sum_exps);
  // Rows are keys here and columns queries; row i is hidden from the first `i *
  // more_hidden` columns. Recomputes weights from scores, and gradients of
  // unscaled scores, weights * (weight_gradients - dots) * scale.
  void (*softmax_backward)(const ScoreTile& tile, int64_t more_hidden,
                           const float* scores, const float* weight_gradients,
                           const float* log_sum_exps, const float* dots,
                           T* weights, T* score_gradients);
  // dots[i] is the dot product of row i of a and row i of b, both [rows,
  // columns] at their strides.
  void (*row_dots)(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                   int64_t rows, int64_t columns, float* dots);
  // Converts fp32 rows to T.
  void (*copy_rows)(const float* from, int64_t from_stride, int64_t rows,
                    int64_t columns, T* to, int64_t to_stride);

  RmsNormLoops<T, T> rms_norm;
  RmsNormLoops<float, T> rms_norm_of_floats;

  // y = gate / (1 + exp(-gate)) * up, where each row of x is n gates, then n
  // values `up`.
  void (*swiglu)(const T* x, int64_t rows, int64_t n, T* y);
  void (*swiglu_backward)(const T* dy, const T* x, int64_t rows, int64_t n,
                          T* dx);

  // Rotates each pair (x[i], x[i + pairs]) of each head by the angle whose
  // cosine and sine are cos[i] and sin[i]; by its negative if `sign` is -1.
  void (*rotate)(const T* x, const float* cos, const float* sin, float sign,
                 int64_t heads, int64_t pairs, T* y);
};

// Returns the loops of all instruction sets that this CPU has, the best first.
// T: float or Bf16Bits.
template <typename T>
const std::vector<const VectorLoops<T>*>& LoopsOfThisCpu();

template <typename T>
const VectorLoops<T>& BestLoops() {
  static const VectorLoops<T>& best = *LoopsOfThisCpu<T>().front();
  return best;
}

// Interleaves rows 2i and 2i + 1 of [rows, columns], value by value, into row
// i, as read by bf16 dot products of pairs. A missing last row counts as zeros.
void PairRows(const Bf16Bits* from, int64_t stride, int64_t rows,
              int64_t columns, Bf16Bits* to, int64_t to_stride);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_

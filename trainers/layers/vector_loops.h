// The loops over numbers of the layers here, compiled for several instruction
// sets; the CPU's best is chosen when a program starts. No torch: pointers to
// fp32 values, or to bf16 ones as their 16 bits. Values that are not finite go
// through as in ATen's loops.
#ifndef RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_
#define RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_

#include <cstdint>
#include <vector>

#include "trainers/layers/bf16.h"

namespace rankwise {

// A tile of attention's scores or their gradients, row by row.
struct ScoreTile {
  int64_t rows = 0, columns = 0;
  int64_t stride = 0;  // between rows of what is read
  // Of what is written: `columns` values, and zeros up to this number.
  int64_t padded_columns = 0;
  int64_t out_stride = 0;
  float scale = 0;  // of the scores, before softmax
};

template <typename T>
struct VectorLoops {
  // y = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
  void (*gelu)(const T* x, T* y, int64_t n);
  // dx = dy times its derivative at x.
  void (*gelu_backward)(const T* dy, const T* x, T* dx, int64_t n);

  // Softmax of the first `visible` columns of the first row, and of
  // `more_visible` more in each next one; the other columns' weights are 0.
  // log_sum_exps: of each row's scaled scores, which are lost.
  void (*softmax)(const ScoreTile& tile, int64_t visible, int64_t more_visible,
                  float* scores, T* weights, float* log_sum_exps);
  // Rows are keys here and columns queries, of which row i is hidden from the
  // first `i * more_hidden`: recomputes weights from scores, and gradients of
  // the (not yet scaled) scores, weights * (weight_gradients - dots) * scale.
  void (*softmax_backward)(const ScoreTile& tile, int64_t more_hidden,
                           const float* scores, const float* weight_gradients,
                           const float* log_sum_exps, const float* dots,
                           T* weights, T* score_gradients);
  // The product of row i of a and of b, [rows, columns] at their strides.
  void (*row_dots)(const T* a, int64_t a_stride, const T* b, int64_t b_stride,
                   int64_t rows, int64_t columns, float* dots);
  // fp32 rows to T.
  void (*copy_rows)(const float* from, int64_t from_stride, int64_t rows,
                    int64_t columns, T* to, int64_t to_stride);
};

// Those of all instruction sets that this CPU has, the best first. T: float or
// Bf16Bits.
template <typename T>
const std::vector<const VectorLoops<T>*>& LoopsOfThisCpu();

template <typename T>
const VectorLoops<T>& BestLoops() {
  static const VectorLoops<T>& best = *LoopsOfThisCpu<T>().front();
  return best;
}

// Rows 2i and 2i + 1 of [rows, columns] side by side, value by value: row i of
// what bf16 dot products of pairs read. A missing last row is one of zeros.
void PairRows(const Bf16Bits* from, int64_t stride, int64_t rows,
              int64_t columns, Bf16Bits* to, int64_t to_stride);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_VECTOR_LOOPS_H_

#include "trainers/layers/linear_bf16.h"

#if defined(__x86_64__)

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <immintrin.h>

#include <utility>

#include "trainers/layers/bf16_pairs.h"
#include "trainers/layers/values.h"
#include "trainers/layers/vector_loops.h"

namespace rankwise {
namespace {

constexpr int64_t kRows = 8, kColumns = 32;  // of a result in registers
constexpr int64_t kVector = 16;              // fp32 values, or pairs of bf16
// Columns of weights in the tiles of the input's gradient: 512 bytes a row.
constexpr int64_t kTileColumns = 128;
// Distances of prefetches, in values and in rows.
constexpr int64_t kValuesAhead = 768, kRowsAhead = 4;
// Steps of a product per step of a tile.
constexpr int64_t kSteps = 4;
// Fewer weights stay in the caches between uses: these products then save no
// time.
constexpr int64_t kFewestWeights = 1 << 20;

RANKWISE_BF16_PAIRS RANKWISE_INLINE_LOOP __m512i Round(const float* low,
                                                       const float* high) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_loadu_ps(high), _mm512_loadu_ps(low)));
}

// Rounds `left` values, 32 per call.
struct RoundValues {
  RANKWISE_BF16_PAIRS RANKWISE_INLINE_LOOP void operator()() {
    if (left == 0) return;
    _mm_prefetch(from + kValuesAhead, _MM_HINT_T0);
    _mm_prefetch(from + kValuesAhead + kVector, _MM_HINT_T0);
    _mm512_storeu_si512(to, Round(from, from + kVector));
    from += 2 * kVector;
    to += 2 * kVector;
    left -= 2 * kVector;
  }

  const float* from = nullptr;
  Bf16Bits* to = nullptr;
  int64_t left = 0;
};

// Rounds kTileColumns of `left` rows to panels, 16 of two rows per call.
struct RoundPanels {
  RANKWISE_BF16_PAIRS RANKWISE_INLINE_LOOP void operator()() {
    if (left == 0) return;
    const __m512i pairs = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
        6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const float* const first = from + column;
    _mm_prefetch(first + kRowsAhead * stride, _MM_HINT_T0);
    _mm_prefetch(first + (kRowsAhead + 1) * stride, _MM_HINT_T0);
    _mm512_storeu_si512(
        to + column / kColumns * panel + column % kColumns * 2,
        _mm512_permutexvar_epi16(pairs, Round(first, first + stride)));
    column += kVector;
    if (column < kTileColumns) return;
    column = 0;
    from += 2 * stride;
    to += 2 * kColumns;
    left -= 2;
  }

  const float* from = nullptr;
  int64_t stride = 0;
  Bf16Bits* to = nullptr;
  int64_t panel = 0;  // values per panel
  int64_t left = 0;
  int64_t column = 0;
};

struct Nothing {
  RANKWISE_BF16_PAIRS RANKWISE_INLINE_LOOP void operator()() {}
};

// Computes c [kRows, kColumns] = a b. `panel` is b [inner, kColumns] with two
// rows interleaved, pair by pair, as dot products read them. Interleaves other
// work where the multiplications leave room for it.
template <typename Work>
RANKWISE_BF16_PAIRS void Multiply(const Bf16Bits* a, int64_t a_stride,
                                  const Bf16Bits* panel, int64_t inner,
                                  float* c, int64_t c_stride,
                                  Work& other_work) {
  Work work = other_work;
  // Three pointers, each of which addresses three rows.
  const Bf16Bits* rows[] = {a, a + 3 * a_stride, a + 6 * a_stride};
  __m512 sums[kRows][2];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row)
    sums[row][0] = sums[row][1] = _mm512_setzero_ps();
  for (int64_t i = 0; i < inner; i += 2 * kSteps) {
    work();
#pragma GCC unroll 4
    for (int step = 0; step < kSteps; ++step) {
      const __m512bh left = LoadPairs(panel);
      const __m512bh right = LoadPairs(panel + kColumns);
      panel += 2 * kColumns;
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        const void* const at = rows[row / 3] + row % 3 * a_stride + 2 * step;
        const __m512bh pair = RepeatPair(*static_cast<const Pair*>(at));
        sums[row][0] = _mm512_dpbf16_ps(sums[row][0], pair, left);
        sums[row][1] = _mm512_dpbf16_ps(sums[row][1], pair, right);
      }
    }
#pragma GCC unroll 3
    for (int row = 0; row < 3; ++row) rows[row] += 2 * kSteps;
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    _mm512_storeu_ps(c + row * c_stride, sums[row][0]);
    _mm512_storeu_ps(c + row * c_stride + kVector, sums[row][1]);
  }
  other_work = work;
}

template <typename Work>
RANKWISE_BF16_PAIRS void Finish(Work& work) {
  while (work.left > 0) work();
}

// Calls use(i, tile, next) for each tile of `size` values, divided among the
// threads; `next` is the work that makes the next tile, make(i + 1, memory).
template <typename Make, typename Use>
void ForEachTile(int64_t tiles, int64_t size, const Make& make,
                 const Use& use) {
  at::parallel_for(0, tiles, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    const torch::Tensor memory = at::empty({2, size}, at::kBFloat16);
    Bf16Bits *tile = Values<Bf16Bits>(memory), *other = tile + size;
    auto next = make(begin, tile);
    Finish(next);
    for (int64_t i = begin; i < end; ++i) {
      next = i + 1 < end ? make(i + 1, other) : decltype(next)();
      use(i, tile, next);
      Finish(next);
      std::swap(tile, other);
    }
  });
}

// Returns x^T as panels, [rows / kColumns, inputs / 2, kColumns] of pairs.
// (ATen's copy of a transposed tensor takes six times as long.)
torch::Tensor TransposedPanels(const torch::Tensor& x) {
  const int64_t rows = x.size(0), pairs = x.size(1) / 2;
  torch::Tensor panels = at::empty_like(x);
  const auto* const from = Values<const uint32_t>(x);
  auto* const to = Values<uint32_t>(panels);
  const auto copy = [&](int64_t row, int64_t pair) {
    to[(row / kColumns * pairs + pair) * kColumns + row % kColumns] =
        from[row * pairs + pair];
  };
  at::parallel_for(0, pairs / kVector, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin * kVector; block < end * kVector;
         block += kVector) {
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < kVector; ++i) copy(row, block + i);
      }
    }
  });
  return panels;
}

// Returns x as panels, [inputs / kColumns, rows / 2, kColumns] of pairs.
torch::Tensor Panels(const torch::Tensor& x) {
  const int64_t rows = x.size(0), inputs = x.size(1);
  torch::Tensor panels = at::empty_like(x);
  at::parallel_for(0, inputs / kColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * kColumns; i < end * kColumns; i += kColumns) {
      PairRows(Values<Bf16Bits>(x) + i, inputs, rows, kColumns,
               Values<Bf16Bits>(panels) + i * rows, 2 * kColumns);
    }
  });
  return panels;
}

}  // namespace

bool HasBf16Linear(int64_t rows, int64_t inputs, int64_t outputs) {
  return HasBf16Pairs() && rows > 0 && rows % kColumns == 0 &&
         inputs % kTileColumns == 0 && outputs % kRows == 0;
}

bool Bf16LinearSavesTime(int64_t rows, int64_t inputs, int64_t outputs) {
  static const bool has_tiles = __builtin_cpu_supports("amx-bf16");
  return HasBf16Linear(rows, inputs, outputs) && !has_tiles &&
         inputs * outputs >= kFewestWeights;
}

torch::Tensor Bf16Linear(const torch::Tensor& x, const torch::Tensor& weight,
                         const torch::Tensor& bias) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = weight.size(0);
  const torch::Tensor panels = TransposedPanels(x);
  const torch::Tensor biases = bias.to(at::kBFloat16).to(at::kFloat);
  torch::Tensor y = at::empty({rows, outputs}, x.options());
  ForEachTile(
      outputs / kRows, kRows * inputs,
      [&](int64_t i, Bf16Bits* tile) {
        return RoundValues{Values<float>(weight) + i * kRows * inputs, tile,
                           kRows * inputs};
      },
      [&](int64_t i, const Bf16Bits* tile, RoundValues& next) {
        const float* const b = Values<float>(biases) + i * kRows;
        float sums[kRows][kColumns];
        for (int64_t x_row = 0; x_row < rows; x_row += kColumns) {
          Multiply(tile, inputs, Values<Bf16Bits>(panels) + x_row * inputs,
                   inputs, sums[0], kColumns, next);
          Bf16Bits* const to =
              Values<Bf16Bits>(y) + x_row * outputs + i * kRows;
          for (int64_t row = 0; row < kColumns; ++row) {
            for (int64_t j = 0; j < kRows; ++j)
              to[row * outputs + j] = ToBf16(sums[j][row] + b[j]);
          }
        }
      });
  return y;
}

torch::Tensor Bf16LinearInputGradient(const torch::Tensor& dy,
                                      const torch::Tensor& weight) {
  const int64_t rows = dy.size(0), outputs = dy.size(1),
                inputs = weight.size(1);
  torch::Tensor dx = at::empty({rows, inputs}, dy.options());
  ForEachTile(
      inputs / kTileColumns, outputs * kTileColumns,
      [&](int64_t i, Bf16Bits* tile) {
        return RoundPanels{.from = Values<float>(weight) + i * kTileColumns,
                           .stride = inputs,
                           .to = tile,
                           .panel = outputs * kColumns,
                           .left = outputs};
      },
      [&](int64_t i, const Bf16Bits* tile, RoundPanels& next) {
        float sums[kRows][kColumns];
        for (int64_t column = 0; column < kTileColumns; column += kColumns) {
          for (int64_t row = 0; row < rows; row += kRows) {
            Multiply(Values<Bf16Bits>(dy) + row * outputs, outputs,
                     tile + column * outputs, outputs, sums[0], kColumns, next);
            BestLoops<Bf16Bits>().copy_rows(
                sums[0], kColumns, kRows, kColumns,
                Values<Bf16Bits>(dx) + row * inputs + i * kTileColumns + column,
                inputs);
          }
        }
      });
  return dx;
}

torch::Tensor Bf16LinearWeightGradient(const torch::Tensor& dy,
                                       const torch::Tensor& x) {
  const int64_t rows = x.size(0), inputs = x.size(1), outputs = dy.size(1);
  const torch::Tensor panels = Panels(x), transposed = dy.t().contiguous();
  torch::Tensor dweight =
      at::empty({outputs, inputs}, x.options().dtype(at::kFloat));
  at::parallel_for(0, outputs / kRows, 1, [&](int64_t begin, int64_t end) {
    Nothing nothing;
    for (int64_t row = begin * kRows; row < end * kRows; row += kRows) {
      for (int64_t column = 0; column < inputs; column += kColumns) {
        Multiply(Values<Bf16Bits>(transposed) + row * rows, rows,
                 Values<Bf16Bits>(panels) + column * rows, rows,
                 Values<float>(dweight) + row * inputs + column, inputs,
                 nothing);
      }
    }
  });
  return dweight;
}

}  // namespace rankwise

#else

namespace rankwise {

bool HasBf16Linear(int64_t, int64_t, int64_t) { return false; }
bool Bf16LinearSavesTime(int64_t, int64_t, int64_t) { return false; }

torch::Tensor Bf16Linear(const torch::Tensor&, const torch::Tensor&,
                         const torch::Tensor&) {
  return {};
}

torch::Tensor Bf16LinearInputGradient(const torch::Tensor&,
                                      const torch::Tensor&) {
  return {};
}

torch::Tensor Bf16LinearWeightGradient(const torch::Tensor&,
                                       const torch::Tensor&) {
  return {};
}

}  // namespace rankwise

#endif

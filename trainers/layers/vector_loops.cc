#include "trainers/layers/vector_loops.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>

#include "trainers/layers/instruction_set.h"

namespace rankwise {
namespace any_cpu {
#include "trainers/layers/vector_loops_body.h"
}  // namespace any_cpu

#pragma GCC push_options
#pragma GCC target("avx2,fma,bmi,bmi2")
namespace avx2 {
#include "trainers/layers/vector_loops_body.h"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target( \
    "avx512f,avx512bw,avx512dq,avx512vl,fma,bmi,bmi2,prefer-vector-width=512")
namespace avx512 {
#include "trainers/layers/vector_loops_body.h"
}  // namespace avx512
#pragma GCC pop_options

template <typename T>
const std::vector<const VectorLoops<T>*>& LoopsOfThisCpu() {
  static const auto* const kFound = [] {
    auto* found = new std::vector<const VectorLoops<T>*>;
    if (HasAvx512()) found->push_back(&avx512::kLoops<T>);
    if (HasAvx2()) found->push_back(&avx2::kLoops<T>);
    found->push_back(&any_cpu::kLoops<T>);
    return found;
  }();
  return *kFound;
}

template const std::vector<const VectorLoops<float>*>& LoopsOfThisCpu();
template const std::vector<const VectorLoops<Bf16Bits>*>& LoopsOfThisCpu();

void PairRows(const Bf16Bits* from, int64_t stride, int64_t rows,
              int64_t columns, Bf16Bits* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; row += 2) {
    const Bf16Bits* const first = from + row * stride;
    Bf16Bits* const pairs = to + row / 2 * to_stride;
    for (int64_t i = 0; i < columns; ++i) {
      pairs[2 * i] = first[i];
      pairs[2 * i + 1] = row + 1 < rows ? first[stride + i] : Bf16Bits{0};
    }
  }
}

}  // namespace rankwise

#ifndef RANKWISE_TRAINERS_LAYERS_VALUES_H_
#define RANKWISE_TRAINERS_LAYERS_VALUES_H_

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>

namespace rankwise {

// Returns a pointer to a tensor's first value, as loops read and write it: T
// may be another type of the same size, such as bf16's bits.
template <typename T>
T* Values(const torch::Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

// Returns whether vector_loops.h has loops for `x`.
inline bool HasLoops(const torch::Tensor& x) {
  return x.is_cpu() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

// Calls `run(begin, end)` for ranges of rows of `width` values, divided among
// the threads.
template <typename Run>
void ForRows(int64_t rows, int64_t width, const Run& run) {
  constexpr int64_t kValuesPerThread = 32768;  // minimum
  at::parallel_for(
      0, rows,
      std::max<int64_t>(1, kValuesPerThread / std::max<int64_t>(1, width)),
      run);
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LAYERS_VALUES_H_

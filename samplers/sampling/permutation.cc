#include "samplers/sampling/permutation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>

#include <utility>

namespace rankwise {

at::Generator SeededGenerator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator) {
  const at::Tensor permutation =
      at::randperm(size, std::move(generator), at::TensorOptions(at::kLong));
  const int64_t* data = permutation.const_data_ptr<int64_t>();
  return std::vector<int64_t>(data, data + size);
}

}  // namespace rankwise

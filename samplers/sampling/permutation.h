#ifndef RANKWISE_SAMPLERS_SAMPLING_PERMUTATION_H_
#define RANKWISE_SAMPLERS_SAMPLING_PERMUTATION_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <vector>

namespace rankwise {

// A CPU generator as torch.Generator().manual_seed(seed) leaves it.
at::Generator SeededGenerator(uint64_t seed);

// torch.randperm(size, generator=generator); advances the generator likewise.
std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator);

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_PERMUTATION_H_

#include "trainers/models/dropout.h"

#include <ATen/Context.h>

#include <mutex>

#include "samplers/datasets/split_mix.h"

namespace rankwise {

uint64_t LayerSeed(uint64_t seed, uint64_t layer) {
  return MixIn(MixIn(seed, 0), layer);
}

void SeedGenerator(c10::Device device, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

}  // namespace rankwise

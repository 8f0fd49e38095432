// Where a layer's dropout masks come from: from what is trained and not from
// when or where it runs, so that every way to run a step draws the same masks.
#ifndef RANKWISE_TRAINERS_MODELS_DROPOUT_H_
#define RANKWISE_TRAINERS_MODELS_DROPOUT_H_

#include <c10/core/Device.h>

#include <cstdint>

namespace rankwise {

// The seed of the layer in this position of a model that was given `seed`. All
// of its 32 low bits, which are what a CPU generator uses, depend on both.
uint64_t LayerSeed(uint64_t seed, uint64_t layer);

// Seeds the device's default generator. Nobody restores what it was before.
void SeedGenerator(c10::Device device, uint64_t seed);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_MODELS_DROPOUT_H_

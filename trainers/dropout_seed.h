// Which dropout masks a micro-batch draws.
#ifndef RANKWISE_TRAINERS_DROPOUT_SEED_H_
#define RANKWISE_TRAINERS_DROPOUT_SEED_H_

#include <cstdint>

#include "samplers/datasets/split_mix.h"

namespace rankwise {

// A seed that depends on nothing but where the micro-batch stands, so that
// every schedule, and a run that resumes, draws the same masks.
constexpr uint64_t DropoutSeed(uint64_t run_seed, int64_t step, int replica,
                               int64_t micro_batch) {
  uint64_t hash = MixIn(0, run_seed);
  hash = MixIn(hash, static_cast<uint64_t>(step));
  hash = MixIn(hash, static_cast<uint64_t>(replica));
  return MixIn(hash, static_cast<uint64_t>(micro_batch));
}

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_DROPOUT_SEED_H_

// The learning rate of each step: linear warm-up, then constant or cosine.
#ifndef RANKWISE_TRAINERS_LEARNING_RATE_H_
#define RANKWISE_TRAINERS_LEARNING_RATE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rankwise {

enum class Decay { kConstant, kCosine };

struct LearningRate {
  double peak = 1e-3;
  int64_t warmup_steps = 0;  // step w of them runs at peak * w / warmup_steps
  int64_t total_steps = 0;   // where the cosine reaches zero
  Decay decay = Decay::kConstant;

  // The rate of optimizer step `step`, counted from 1. Cosine: Loshchilov and
  // Hutter 2017, equation 5, without restarts.
  double At(int64_t step) const;
};

// True, and `decay` set, for "constant" and "cosine".
bool ParseDecay(absl::string_view text, Decay* decay);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LEARNING_RATE_H_

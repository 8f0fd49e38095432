// The learning rate of each step: linear warm-up, then constant or cosine.
#ifndef RANKWISE_TRAINERS_LEARNING_RATE_H_
#define RANKWISE_TRAINERS_LEARNING_RATE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace rankwise {

enum class Schedule { kConstant, kCosine };

struct LearningRate {
  double peak = 1e-3;
  int64_t warmup_steps = 0;  // step w of them runs at peak * w / warmup_steps
  int64_t total_steps = 0;   // where the cosine reaches zero
  Schedule schedule = Schedule::kConstant;

  // The rate of optimizer step `step`, counted from 1. Cosine: Loshchilov and
  // Hutter 2017, equation 5, without restarts.
  double At(int64_t step) const;
};

// True, and `schedule` set, for "constant" and "cosine".
bool ParseSchedule(absl::string_view text, Schedule* schedule);

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_LEARNING_RATE_H_

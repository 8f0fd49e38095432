#include "trainers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rankwise {

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (schedule == Schedule::kConstant) return peak;
  const double decay_steps =
      static_cast<double>(std::max<int64_t>(total_steps - warmup_steps, 1));
  const double progress = std::min(
      1.0, static_cast<double>(step - std::max<int64_t>(warmup_steps, 1)) /
               decay_steps);
  return peak * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

bool ParseSchedule(absl::string_view text, Schedule* schedule) {
  if (text == "constant") {
    *schedule = Schedule::kConstant;
  } else if (text == "cosine") {
    *schedule = Schedule::kCosine;
  } else {
    return false;
  }
  return true;
}

}  // namespace rankwise

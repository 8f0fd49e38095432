#include "trainers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rankwise {

double LearningRate::At(int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  if (decay == Decay::kConstant) return peak;
  // The peak is at the last step of the warm-up, or at the first of all.
  const int64_t peak_step = std::max<int64_t>(warmup_steps, 1);
  const double progress =
      static_cast<double>(step - peak_step) /
      static_cast<double>(std::max<int64_t>(total_steps - peak_step, 1));
  return peak * 0.5 *
         (1.0 + std::cos(std::numbers::pi * std::min(progress, 1.0)));
}

bool ParseDecay(absl::string_view text, Decay* decay) {
  if (text == "constant") {
    *decay = Decay::kConstant;
  } else if (text == "cosine") {
    *decay = Decay::kCosine;
  } else {
    return false;
  }
  return true;
}

}  // namespace rankwise

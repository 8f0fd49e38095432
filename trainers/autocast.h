// Runs a scope's matrix products and convolutions in 16 bits, as torch.autocast
// does.
#ifndef RANKWISE_TRAINERS_AUTOCAST_H_
#define RANKWISE_TRAINERS_AUTOCAST_H_

#include <ATen/autocast_mode.h>

#include "trainers/config.h"

namespace rankwise {

// Not nestable. Weights are cast once per scope.
class AutocastScope {
 public:
  // Does nothing under kFp32.
  AutocastScope(Precision precision, at::DeviceType device)
      : enabled_(precision != Precision::kFp32), device_(device) {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(
        device_, precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
    at::autocast::increment_nesting();
  }
  ~AutocastScope() {
    if (!enabled_) return;
    at::autocast::decrement_nesting();
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool enabled_;
  const at::DeviceType device_;
};

}  // namespace rankwise

#endif  // RANKWISE_TRAINERS_AUTOCAST_H_

// Runs a scope's matrix products and convolutions in bfloat16, as
// torch.autocast(dtype=torch.bfloat16) does.
#ifndef RANKWISE_TRAINERS_AUTOCAST_H_
#define RANKWISE_TRAINERS_AUTOCAST_H_

#include <ATen/autocast_mode.h>

namespace rankwise {

// Not nestable. Weights are cast once per scope.
class AutocastScope {
 public:
  AutocastScope(bool enabled, at::DeviceType device)
      : enabled_(enabled), device_(device) {
    if (!enabled_) return;
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
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

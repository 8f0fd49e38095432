#ifndef RANKWISE_SAMPLERS_DATASETS_LINEAR_REGRESSION_H_
#define RANKWISE_SAMPLERS_DATASETS_LINEAR_REGRESSION_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// The smallest dataset: y = w.x + b + noise, with 10 standard normal features,
// one target, and noise of standard deviation 0.1. Both splits share w and b,
// which come from the seed; no model's mean squared error falls below 0.01.
class LinearRegression final : public Dataset {
 public:
  static constexpr int64_t kFeatures = 10;

  // InvalidArgument when `size` is negative.
  static absl::StatusOr<std::unique_ptr<LinearRegression>> Open(uint64_t seed,
                                                                Split split,
                                                                int64_t size);

  int64_t size() const override { return features_.size(0); }
  absl::string_view name() const override { return "linear"; }
  std::vector<int64_t> example_shape() const override { return {kFeatures}; }
  int64_t num_classes() const override { return 0; }
  // data: fp32 [B, 10]; target: fp32 [B, 1].
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  LinearRegression(at::Tensor features, at::Tensor targets);

  const at::Tensor features_;  // fp32 [size, 10]
  const at::Tensor targets_;   // fp32 [size, 1]
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_LINEAR_REGRESSION_H_

#ifndef RANKWISE_SAMPLERS_DATASETS_REGRESSION_H_
#define RANKWISE_SAMPLERS_DATASETS_REGRESSION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "samplers/datasets/dataset.h"

namespace rankwise {

// Regression of 1024 targets on 1024 features: y = U V x + noise, with x
// uniform over -2 .. 2, V [8, 1024] and U [1024, 8] of random signs (scaled so
// that targets have a variance of about 0.67), and noise of standard deviation
// 0.07. Few numbers decide the targets, so that it is quick to learn and quick
// to generate; no model's mean squared error falls below 0.0052.
//
// An example is a function of (seed, split, index), computed in integers: the
// same on every machine, and made when it is asked for. Both splits share U and
// V.
class Regression final : public Dataset {
 public:
  static constexpr int64_t kFeatures = 1024;
  static constexpr int64_t kRank = 8;

  // InvalidArgument when `size` is negative.
  static absl::StatusOr<std::unique_ptr<Regression>> Open(uint64_t seed,
                                                          Split split,
                                                          int64_t size);

  int64_t size() const override { return size_; }
  absl::string_view name() const override { return "regression"; }
  std::vector<int64_t> example_shape() const override { return {kFeatures}; }
  int64_t num_classes() const override { return 0; }
  // data: fp32 [B, 1024]; target: fp32 [B, 1024].
  Batch Gather(absl::Span<const int64_t> indices) const override;

 private:
  Regression(uint64_t seed, Split split, int64_t size);

  void Generate(int64_t index, float* features, float* targets) const;

  const int64_t size_;
  const uint64_t stream_;               // the key of this split's examples
  const std::vector<int16_t> encoder_;  // V, [kRank][kFeatures]
  const std::vector<int16_t> decoder_;  // U transposed, [kRank][kFeatures]
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_DATASETS_REGRESSION_H_

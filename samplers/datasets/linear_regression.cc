#include "samplers/datasets/linear_regression.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/sampling/permutation.h"

namespace rankwise {
namespace {

constexpr float kNoise = 0.1f;

}  // namespace

absl::StatusOr<std::unique_ptr<LinearRegression>> LinearRegression::Open(
    uint64_t seed, Split split, int64_t size) {
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("linear: the ", SplitName(split), " split is to have ",
                     size, " examples; it must be 0 or more"));
  }
  // Three streams of the seed: the weights, and the examples of either split.
  const at::Generator of_weights = SeededGenerator(3 * seed);
  const at::Generator of_examples =
      SeededGenerator(3 * seed + (split == Split::kTrain ? 1 : 2));
  const at::Tensor weights = at::randn({kFeatures + 1}, of_weights);
  at::Tensor features = at::randn({size, kFeatures}, of_examples);
  at::Tensor targets = at::randn({size, 1}, of_examples);  // noise, so far
  const float* weight = weights.const_data_ptr<float>();
  const float* feature = features.const_data_ptr<float>();
  float* target = targets.mutable_data_ptr<float>();
  for (int64_t i = 0; i < size; ++i) {
    const float bias = weight[kFeatures];
    target[i] = std::inner_product(weight, weight + kFeatures, feature,
                                   bias + kNoise * target[i]);
    feature += kFeatures;
  }
  return absl::WrapUnique(
      new LinearRegression(std::move(features), std::move(targets)));
}

LinearRegression::LinearRegression(at::Tensor features, at::Tensor targets)
    : features_(std::move(features)), targets_(std::move(targets)) {}

Batch LinearRegression::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, kFeatures}, at::kFloat),
              at::empty({count, 1}, at::kFloat)};
  const float* features = features_.const_data_ptr<float>();
  const float* targets = targets_.const_data_ptr<float>();
  float* data = batch.data.mutable_data_ptr<float>();
  float* target = batch.target.mutable_data_ptr<float>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(),
                      "linear: there is no example ", index, "; the size is ",
                      size());
    data = std::copy_n(features + index * kFeatures, kFeatures, data);
    *target++ = targets[index];
  }
  return batch;
}

}  // namespace rankwise

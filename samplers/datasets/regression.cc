#include "samplers/datasets/regression.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/datasets/split_mix.h"

namespace rankwise {
namespace {

constexpr int64_t kFeatures = Regression::kFeatures;
constexpr int64_t kRank = Regression::kRank;
// Powers of two, so that the conversion to floating point is exact.
constexpr float kFeatureScale = 1.0f / 64;
constexpr float kTargetScale = 1.0f / 8192;
constexpr int32_t kNoise = 8;  // in units of kTargetScale, per unit of a byte

std::vector<int16_t> RandomSigns(uint64_t key) {
  std::vector<int16_t> signs(kRank * kFeatures);
  SplitMix random(key);
  for (int16_t& sign : signs)
    sign = static_cast<int16_t>(1 - 2 * static_cast<int>(random.Below(2)));
  return signs;
}

// kFeatures values, uniform over -128 .. 127.
void RandomBytes(SplitMix& random, int16_t* values) {
  for (int64_t i = 0; i < kFeatures; i += 8) {
    const uint64_t bits = random.Next();
    for (int j = 0; j < 8; ++j) {
      values[i + j] = static_cast<int16_t>(((bits >> (8 * j)) & 255) - 128);
    }
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Regression>> Regression::Open(uint64_t seed,
                                                             Split split,
                                                             int64_t size) {
  if (size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("regression: the ", SplitName(split), " split is to have ",
                     size, " examples; it must be 0 or more"));
  }
  return absl::WrapUnique(new Regression(seed, split, size));
}

Regression::Regression(uint64_t seed, Split split, int64_t size)
    : size_(size),
      stream_(Mix(Mix(seed) + (split == Split::kTrain ? 1 : 2))),
      encoder_(RandomSigns(Mix(Mix(seed) + 3))),
      decoder_(RandomSigns(Mix(Mix(seed) + 4))) {}

void Regression::Generate(int64_t index, float* features,
                          float* targets) const {
  SplitMix random(Mix(stream_ ^ static_cast<uint64_t>(index)));
  int16_t x[kFeatures], noise[kFeatures];
  RandomBytes(random, x);
  RandomBytes(random, noise);
  int32_t sums[kFeatures];
  for (int64_t i = 0; i < kFeatures; ++i) {
    features[i] = static_cast<float>(x[i]) * kFeatureScale;
    sums[i] = kNoise * noise[i];
  }
  for (int64_t r = 0; r < kRank; ++r) {
    const int16_t* encode = &encoder_[r * kFeatures];
    const int16_t* decode = &decoder_[r * kFeatures];
    int32_t hidden = 0;
    for (int64_t i = 0; i < kFeatures; ++i) hidden += encode[i] * x[i];
    for (int64_t i = 0; i < kFeatures; ++i) sums[i] += decode[i] * hidden;
  }
  for (int64_t i = 0; i < kFeatures; ++i)
    targets[i] = static_cast<float>(sums[i]) * kTargetScale;
}

Batch Regression::Gather(absl::Span<const int64_t> indices) const {
  const int64_t count = static_cast<int64_t>(indices.size());
  Batch batch{at::empty({count, kFeatures}, at::kFloat),
              at::empty({count, kFeatures}, at::kFloat)};
  float* features = batch.data.mutable_data_ptr<float>();
  float* targets = batch.target.mutable_data_ptr<float>();
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size_,
                      "regression: there is no example ", index,
                      "; the size is ", size_);
    Generate(index, features, targets);
    features += kFeatures;
    targets += kFeatures;
  }
  return batch;
}

}  // namespace rankwise

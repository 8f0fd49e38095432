#include "samplers/sampling/random_sampler.h"

#include <ATen/ops/randint.h>

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "samplers/sampling/permutation.h"

namespace rankwise {
namespace {

// Draws with replacement as Python does: 32 at a time, then the rest.
std::vector<int64_t> DrawIndependently(int64_t dataset_size, int64_t count,
                                       const at::Generator& generator) {
  constexpr int64_t kBlock = 32;
  std::vector<int64_t> indices;
  indices.reserve(count);
  while (static_cast<int64_t>(indices.size()) < count) {
    const int64_t block =
        std::min<int64_t>(kBlock, count - static_cast<int64_t>(indices.size()));
    const at::Tensor drawn = at::randint(dataset_size, {block}, generator,
                                         at::TensorOptions(at::kLong));
    const int64_t* data = drawn.const_data_ptr<int64_t>();
    indices.insert(indices.end(), data, data + block);
  }
  return indices;
}

// One permutation after another, the last one cut.
std::vector<int64_t> DrawPermutations(int64_t dataset_size, int64_t count,
                                      const at::Generator& generator) {
  std::vector<int64_t> indices;
  indices.reserve(count);
  while (static_cast<int64_t>(indices.size()) < count) {
    const std::vector<int64_t> permutation =
        RandomPermutation(dataset_size, generator);
    const int64_t take = std::min<int64_t>(
        dataset_size, count - static_cast<int64_t>(indices.size()));
    indices.insert(indices.end(), permutation.begin(),
                   permutation.begin() + take);
  }
  return indices;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RandomSampler>> RandomSampler::Create(
    int64_t dataset_size, const RandomSamplerConfig& config) {
  const int64_t num_samples = config.num_samples.value_or(dataset_size);
  if (dataset_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RandomSampler: the dataset size is ", dataset_size,
                     "; it must be 0 or more"));
  }
  if (num_samples < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RandomSampler: num_samples is ", num_samples,
                     "; it must be 0 or more"));
  }
  if (dataset_size == 0 && num_samples > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RandomSampler: num_samples is ", num_samples,
                     ", but the dataset is empty"));
  }
  return absl::WrapUnique(new RandomSampler(dataset_size, num_samples, config));
}

RandomSampler::RandomSampler(int64_t dataset_size, int64_t num_samples,
                             const RandomSamplerConfig& config)
    : dataset_size_(dataset_size),
      num_samples_(num_samples),
      config_(config),
      guard_("RandomSampler") {}

void RandomSampler::set_epoch(int64_t epoch) {
  epoch_ = epoch;
  guard_.EpochChosen();
}

std::vector<int64_t> RandomSampler::Indices() {
  guard_.EpochUsed();
  const at::Generator generator =
      SeededGenerator(config_.seed + static_cast<uint64_t>(epoch_));
  return config_.replacement
             ? DrawIndependently(dataset_size_, num_samples_, generator)
             : DrawPermutations(dataset_size_, num_samples_, generator);
}

}  // namespace rankwise

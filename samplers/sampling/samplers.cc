#include "samplers/sampling/samplers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace rankwise {
namespace {

// Returns the number of indices of one rank.
int64_t SamplesPerRank(int64_t dataset_size,
                       const DistributedSamplerConfig& config) {
  const int64_t whole = dataset_size / config.num_replicas;
  const int64_t rest = dataset_size % config.num_replicas;
  if (config.mode == DistributedSamplerConfig::Mode::kExact)
    return whole + (config.rank < rest ? 1 : 0);
  return config.drop_last || rest == 0 ? whole : whole + 1;
}

}  // namespace

at::Generator SeededGenerator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator) {
  const at::Tensor permutation =
      at::randperm(size, std::move(generator), at::TensorOptions(at::kLong));
  const int64_t* data = permutation.const_data_ptr<int64_t>();
  return std::vector<int64_t>(data, data + size);
}

absl::StatusOr<std::unique_ptr<DistributedSampler>> DistributedSampler::Create(
    int64_t dataset_size, const DistributedSamplerConfig& config) {
  if (dataset_size < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedSampler: the dataset size is ", dataset_size,
                     "; it must be 0 or more"));
  }
  if (config.num_replicas < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedSampler: num_replicas (the world size) is ",
                     config.num_replicas, "; it must be 1 or more"));
  }
  if (config.rank < 0 || config.rank >= config.num_replicas) {
    return absl::InvalidArgumentError(
        absl::StrCat("DistributedSampler: the rank is ", config.rank, "; with ",
                     config.num_replicas, " replicas it must be in 0 .. ",
                     config.num_replicas - 1));
  }
  if (config.mode == DistributedSamplerConfig::Mode::kExact &&
      config.drop_last) {
    return absl::InvalidArgumentError(
        "DistributedSampler: exact mode leaves no example out, so drop_last "
        "cannot be combined with it");
  }
  return absl::WrapUnique(new DistributedSampler(dataset_size, config));
}

DistributedSampler::DistributedSampler(int64_t dataset_size,
                                       const DistributedSamplerConfig& config)
    : dataset_size_(dataset_size),
      config_(config),
      num_samples_(SamplesPerRank(dataset_size, config)) {}

void DistributedSampler::set_epoch(int64_t epoch) {
  epoch_ = epoch;
  epoch_used_ = false;
}

// Returns the generator of this epoch's order, and marks the epoch as used.
at::Generator DistributedSampler::GeneratorOfEpoch() {
  if (epoch_used_ && !std::exchange(warned_, true)) {
    TORCH_WARN(
        "DistributedSampler: another shuffled epoch begins without set_epoch "
        "since the last one, so it has the same order again; call "
        "set_epoch(epoch) before every epoch");
  }
  epoch_used_ = true;
  return SeededGenerator(config_.seed + static_cast<uint64_t>(epoch_));
}

std::vector<int64_t> DistributedSampler::Indices() {
  std::vector<int64_t> order;
  if (config_.shuffle)
    order = RandomPermutation(dataset_size_, GeneratorOfEpoch());
  // Padding repeats the order from its front as often as needed, so the padded
  // order at place p is the order at p modulo its length. Without padding,
  // places never reach the end.
  std::vector<int64_t> indices(num_samples_);
  for (int64_t i = 0; i < num_samples_; ++i) {
    const int64_t place = config_.rank + i * config_.num_replicas;
    const int64_t wrapped =
        place < dataset_size_ ? place : place % dataset_size_;
    indices[i] = config_.shuffle ? order[wrapped] : wrapped;
  }
  return indices;
}

}  // namespace rankwise

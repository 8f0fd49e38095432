#include "samplers/sampling/samplers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "third_party/absl/status_macros.h"

namespace rankwise {
namespace {

// `field` is what the message calls the value.
absl::Status CheckNotNegative(const char* sampler, const char* field,
                              int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      sampler, ": ", field, " is ", value, "; it must be 0 or more"));
}

void Append(const at::Tensor& drawn, std::vector<int64_t>& indices) {
  const int64_t* data = drawn.const_data_ptr<int64_t>();
  indices.insert(indices.end(), data, data + drawn.numel());
}

// How many indices one rank gets.
int64_t SamplesPerRank(int64_t dataset_size,
                       const DistributedSamplerConfig& config) {
  const int64_t whole = dataset_size / config.num_replicas;
  const int64_t rest = dataset_size % config.num_replicas;
  if (config.mode == DistributedSamplerConfig::Mode::kExact)
    return whole + (config.rank < rest ? 1 : 0);
  return config.drop_last || rest == 0 ? whole : whole + 1;
}

}  // namespace

std::vector<int64_t> SequentialSampler::Indices() {
  std::vector<int64_t> indices(size_);
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return indices;
}

at::Generator SeededGenerator(uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator) {
  std::vector<int64_t> permutation;
  Append(at::randperm(size, std::move(generator), at::kLong), permutation);
  return permutation;
}

void SeededSampler::set_epoch(int64_t epoch) {
  epoch_ = epoch;
  epoch_used_ = false;
}

at::Generator SeededSampler::GeneratorOfEpoch() {
  if (epoch_used_ && !warned_) {
    warned_ = true;
    TORCH_WARN(name_,
               ": another shuffled epoch begins without set_epoch since the "
               "last one, so it has the same order again; call "
               "set_epoch(epoch) before every epoch");
  }
  epoch_used_ = true;
  return SeededGenerator(seed_ + static_cast<uint64_t>(epoch_));
}

absl::StatusOr<std::unique_ptr<RandomSampler>> RandomSampler::Create(
    int64_t dataset_size, const RandomSamplerConfig& config) {
  const int64_t num_samples = config.num_samples.value_or(dataset_size);
  RETURN_IF_ERROR(
      CheckNotNegative("RandomSampler", "the dataset size", dataset_size));
  RETURN_IF_ERROR(
      CheckNotNegative("RandomSampler", "num_samples", num_samples));
  if (dataset_size == 0 && num_samples > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("RandomSampler: num_samples is ", num_samples,
                     ", but the dataset is empty"));
  }
  return absl::WrapUnique(new RandomSampler(dataset_size, num_samples, config));
}

RandomSampler::RandomSampler(int64_t dataset_size, int64_t num_samples,
                             const RandomSamplerConfig& config)
    : SeededSampler("RandomSampler", config.seed),
      dataset_size_(dataset_size),
      num_samples_(num_samples),
      replacement_(config.replacement) {}

std::vector<int64_t> RandomSampler::Indices() {
  constexpr int64_t kBlock = 32;  // what Python draws at a time
  const at::Generator generator = GeneratorOfEpoch();
  std::vector<int64_t> indices;
  while (static_cast<int64_t>(indices.size()) < num_samples_) {
    const int64_t left = num_samples_ - static_cast<int64_t>(indices.size());
    Append(replacement_ ? at::randint(dataset_size_, {std::min(kBlock, left)},
                                      generator, at::kLong)
                        : at::randperm(dataset_size_, generator, at::kLong),
           indices);
  }
  indices.resize(num_samples_);
  return indices;
}

absl::StatusOr<std::unique_ptr<DistributedSampler>> DistributedSampler::Create(
    int64_t dataset_size, const DistributedSamplerConfig& config) {
  RETURN_IF_ERROR(
      CheckNotNegative("DistributedSampler", "the dataset size", dataset_size));
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
    : SeededSampler("DistributedSampler", config.seed),
      dataset_size_(dataset_size),
      config_(config),
      num_samples_(SamplesPerRank(dataset_size, config)) {}

std::vector<int64_t> DistributedSampler::Indices() {
  std::vector<int64_t> order;
  if (config_.shuffle) {
    order = RandomPermutation(dataset_size_, GeneratorOfEpoch());
  }
  // Padding repeats the order from its front as often as needed, so the padded
  // order at place p is the order at p modulo its length. Dropped and exact
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

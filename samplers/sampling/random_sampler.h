#ifndef RANKWISE_SAMPLERS_SAMPLING_RANDOM_SAMPLER_H_
#define RANKWISE_SAMPLERS_SAMPLING_RANDOM_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/sampling/epoch_guard.h"
#include "samplers/sampling/sampler.h"

namespace rankwise {

struct RandomSamplerConfig {
  uint64_t seed = 0;
  // Draw every index independently, so that some come twice.
  bool replacement = false;
  // Indices per epoch; the dataset's size when unset. Beyond that size, without
  // replacement, one permutation follows another.
  std::optional<int64_t> num_samples = std::nullopt;
};

// torch.utils.data.RandomSampler, index for index, with a generator that is
// seeded anew with seed + epoch for every epoch (as DistributedSampler does),
// so that any epoch can be had without its predecessors:
//   g = torch.Generator(); g.manual_seed(seed + epoch)
//   list(RandomSampler(range(n), replacement, num_samples, generator=g))
class RandomSampler final : public Sampler {
 public:
  // InvalidArgument when `dataset_size` or num_samples is negative, or when
  // samples are asked of an empty dataset.
  static absl::StatusOr<std::unique_ptr<RandomSampler>> Create(
      int64_t dataset_size, const RandomSamplerConfig& config);

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return num_samples_; }
  void set_epoch(int64_t epoch) override;

 private:
  RandomSampler(int64_t dataset_size, int64_t num_samples,
                const RandomSamplerConfig& config);

  const int64_t dataset_size_;
  const int64_t num_samples_;
  const RandomSamplerConfig config_;
  int64_t epoch_ = 0;
  EpochGuard guard_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_RANDOM_SAMPLER_H_

#ifndef RANKWISE_SAMPLERS_SAMPLING_DISTRIBUTED_SAMPLER_H_
#define RANKWISE_SAMPLERS_SAMPLING_DISTRIBUTED_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/sampling/epoch_guard.h"
#include "samplers/sampling/sampler.h"

namespace rankwise {

struct DistributedSamplerConfig {
  enum class Mode {
    // PyTorch's: every rank gets equally many indices; indices from the front
    // are repeated to fill up (or the tail is dropped, with drop_last).
    kPadded,
    // Every example exactly once over all ranks; the first size % num_replicas
    // ranks get one more. For evaluation, where repeated examples would count
    // twice.
    kExact,
  };

  // Ranks that share the dataset (the world size), and which one this is.
  int64_t num_replicas = 1;
  int64_t rank = 0;
  // A new order every epoch, from seed + epoch; all ranks need the same seed.
  bool shuffle = true;
  uint64_t seed = 0;
  // Drop the tail instead of padding; kPadded only.
  bool drop_last = false;
  Mode mode = Mode::kPadded;
};

// torch.utils.data.distributed.DistributedSampler, index for index: a
// permutation by torch.randperm from seed + epoch, padded by repetition (also
// when the padding exceeds the dataset) or cut, of which rank r takes every
// num_replicas-th element from the r-th on.
//
//   auto sampler = DistributedSampler::Create(dataset->size(), {.rank = 1});
//   (*sampler)->set_epoch(3);
//   std::vector<int64_t> indices = (*sampler)->Indices();
class DistributedSampler final : public Sampler {
 public:
  // InvalidArgument when the size is negative, num_replicas is not positive,
  // the rank is not in 0 .. num_replicas - 1, or drop_last meets kExact.
  static absl::StatusOr<std::unique_ptr<DistributedSampler>> Create(
      int64_t dataset_size, const DistributedSamplerConfig& config);

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return num_samples_; }
  void set_epoch(int64_t epoch) override;

 private:
  DistributedSampler(int64_t dataset_size,
                     const DistributedSamplerConfig& config);

  const int64_t dataset_size_;
  const DistributedSamplerConfig config_;
  const int64_t num_samples_;
  int64_t epoch_ = 0;
  EpochGuard guard_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_DISTRIBUTED_SAMPLER_H_

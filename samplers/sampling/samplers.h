// Which examples one rank sees in one epoch, and in which order: PyTorch's
// DistributedSampler, index for index. With one replica it is RandomSampler, or
// without shuffling SequentialSampler.
#ifndef RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_
#define RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// A CPU generator as torch.Generator().manual_seed(seed) leaves it.
at::Generator SeededGenerator(uint64_t seed);

// torch.randperm(size, generator=generator); advances the generator likewise.
std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator);

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

// torch.utils.data.distributed.DistributedSampler: a permutation by
// torch.randperm from seed + epoch, padded by repetition (also when the padding
// exceeds the dataset) or cut, of which rank r takes every num_replicas-th
// element from the r-th on.
//
//   auto sampler = DistributedSampler::Create(dataset->size(), {.rank = 1});
//   (*sampler)->set_epoch(3);
//   std::vector<int64_t> indices = (*sampler)->Indices();
//
// Not thread-safe: one thread owns a sampler.
class DistributedSampler {
 public:
  // InvalidArgument when the size is negative, num_replicas is not positive,
  // the rank is not in 0 .. num_replicas - 1, or drop_last meets kExact.
  static absl::StatusOr<std::unique_ptr<DistributedSampler>> Create(
      int64_t dataset_size, const DistributedSamplerConfig& config);

  // This epoch's dataset indices for this rank: a function of the configuration
  // and the epoch alone. Warns (c10's warning handler, by default stderr) of
  // the first shuffled epoch that begins without set_epoch since the last one:
  // it has the same order again.
  std::vector<int64_t> Indices();
  // The length of Indices(), the same in every epoch.
  int64_t size() const { return num_samples_; }
  // Chooses the epoch that the next Indices() is for. Epoch 0 at first.
  void set_epoch(int64_t epoch);

 private:
  DistributedSampler(int64_t dataset_size,
                     const DistributedSamplerConfig& config);
  at::Generator GeneratorOfEpoch();

  const int64_t dataset_size_;
  const DistributedSamplerConfig config_;
  const int64_t num_samples_;
  int64_t epoch_ = 0;
  bool epoch_used_ = false;
  bool warned_ = false;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_

// The examples of one rank in one epoch, and their order: equals PyTorch's
// DistributedSampler, index for index. With one replica it equals
// RandomSampler, or SequentialSampler without shuffling.
#ifndef RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_
#define RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// Returns a CPU generator in the state of torch.Generator().manual_seed(seed).
at::Generator SeededGenerator(uint64_t seed);

// Returns torch.randperm(size, generator=generator); advances the generator.
std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator);

struct DistributedSamplerConfig {
  enum class Mode {
    // As in PyTorch: every rank gets equally many indices; indices from the
    // front are repeated as padding (or the tail is dropped, with drop_last).
    kPadded,
    // Every example exactly once over all ranks; the first size % num_replicas
    // ranks get one more. For evaluation, where repeated examples would count
    // twice.
    kExact,
  };

  // The number of ranks that share the dataset (world size), and this rank.
  int64_t num_replicas = 1;
  int64_t rank = 0;
  // A new order every epoch, from seed + epoch; all ranks need the same seed.
  bool shuffle = true;
  uint64_t seed = 0;
  // Drop the tail instead of padding; kPadded only.
  bool drop_last = false;
  Mode mode = Mode::kPadded;
};

// torch.utils.data.distributed.DistributedSampler: a torch.randperm permutation
// from seed + epoch, padded by repetition (even if the padding exceeds the
// dataset) or truncated. Rank r takes every num_replicas-th element, starting
// with element r.
//
//   auto sampler = DistributedSampler::Create(dataset->size(), {.rank = 1});
//   (*sampler)->set_epoch(3);
//   std::vector<int64_t> indices = (*sampler)->Indices();
//
// Not thread-safe: one thread owns a sampler.
class DistributedSampler {
 public:
  // InvalidArgument if the size is negative, num_replicas is not positive, the
  // rank is not in 0 .. num_replicas - 1, or drop_last is combined with kExact.
  static absl::StatusOr<std::unique_ptr<DistributedSampler>> Create(
      int64_t dataset_size, const DistributedSamplerConfig& config);

  // Returns this epoch's dataset indices for this rank: a function of the
  // configuration and the epoch only. Warns (c10's warning handler, by default
  // stderr) once, at the first shuffled epoch without a new set_epoch, which
  // repeats the previous order.
  std::vector<int64_t> Indices();
  // Returns the length of Indices(), the same in every epoch.
  int64_t size() const { return num_samples_; }
  // Sets the epoch of the next Indices(). Initially 0.
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

// Which examples one rank sees in one epoch, and in which order: PyTorch's
// samplers, index for index.
#ifndef RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_
#define RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_

#include <ATen/core/Generator.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace rankwise {

// Not thread-safe: one thread owns a sampler.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // This epoch's dataset indices for this rank: a function of the sampler's
  // configuration and its epoch alone.
  virtual std::vector<int64_t> Indices() = 0;
  // The length of Indices(), the same in every epoch.
  virtual int64_t size() const = 0;
  // Chooses the epoch that the next Indices() is for. Epoch 0 at first.
  virtual void set_epoch(int64_t epoch) = 0;
};

// 0, 1, 2, ... in every epoch: torch.utils.data.SequentialSampler.
class SequentialSampler final : public Sampler {
 public:
  explicit SequentialSampler(int64_t dataset_size) : size_(dataset_size) {}

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return size_; }
  void set_epoch(int64_t /*epoch*/) override {}

 private:
  const int64_t size_;
};

// A CPU generator as torch.Generator().manual_seed(seed) leaves it.
at::Generator SeededGenerator(uint64_t seed);

// torch.randperm(size, generator=generator); advances the generator likewise.
std::vector<int64_t> RandomPermutation(int64_t size, at::Generator generator);

// A sampler whose orders come from seed + epoch, so that any epoch can be had
// without its predecessors. It warns (c10's warning handler, by default stderr)
// of the first shuffled epoch that begins without set_epoch since the last one:
// it has the same order again.
class SeededSampler : public Sampler {
 public:
  void set_epoch(int64_t epoch) final;

 protected:
  // `name` of the class, for the warning.
  SeededSampler(std::string name, uint64_t seed)
      : name_(std::move(name)), seed_(seed) {}

  // What this epoch's order is drawn from; the order counts as handed out.
  at::Generator GeneratorOfEpoch();

 private:
  const std::string name_;
  const uint64_t seed_;
  int64_t epoch_ = 0;
  bool epoch_used_ = false;
  bool warned_ = false;
};

struct RandomSamplerConfig {
  uint64_t seed = 0;
  // Draw every index independently, so that some come twice.
  bool replacement = false;
  // Indices per epoch; the dataset's size when unset. Beyond that size, without
  // replacement, one permutation follows another.
  std::optional<int64_t> num_samples = std::nullopt;
};

// torch.utils.data.RandomSampler with a generator that is seeded anew for every
// epoch, as DistributedSampler's is:
//   g = torch.Generator(); g.manual_seed(seed + epoch)
//   list(RandomSampler(range(n), replacement, num_samples, generator=g))
class RandomSampler final : public SeededSampler {
 public:
  // InvalidArgument when `dataset_size` or num_samples is negative, or when
  // samples are asked of an empty dataset.
  static absl::StatusOr<std::unique_ptr<RandomSampler>> Create(
      int64_t dataset_size, const RandomSamplerConfig& config);

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return num_samples_; }

 private:
  RandomSampler(int64_t dataset_size, int64_t num_samples,
                const RandomSamplerConfig& config);

  const int64_t dataset_size_;
  const int64_t num_samples_;
  const bool replacement_;
};

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
class DistributedSampler final : public SeededSampler {
 public:
  // InvalidArgument when the size is negative, num_replicas is not positive,
  // the rank is not in 0 .. num_replicas - 1, or drop_last meets kExact.
  static absl::StatusOr<std::unique_ptr<DistributedSampler>> Create(
      int64_t dataset_size, const DistributedSamplerConfig& config);

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return num_samples_; }

 private:
  DistributedSampler(int64_t dataset_size,
                     const DistributedSamplerConfig& config);

  const int64_t dataset_size_;
  const DistributedSamplerConfig config_;
  const int64_t num_samples_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_SAMPLERS_H_

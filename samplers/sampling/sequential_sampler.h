#ifndef RANKWISE_SAMPLERS_SAMPLING_SEQUENTIAL_SAMPLER_H_
#define RANKWISE_SAMPLERS_SAMPLING_SEQUENTIAL_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "samplers/sampling/sampler.h"

namespace rankwise {

// 0, 1, 2, ... in every epoch: torch.utils.data.SequentialSampler.
class SequentialSampler final : public Sampler {
 public:
  // InvalidArgument when `dataset_size` is negative.
  static absl::StatusOr<std::unique_ptr<SequentialSampler>> Create(
      int64_t dataset_size);

  std::vector<int64_t> Indices() override;
  int64_t size() const override { return size_; }
  void set_epoch(int64_t /*epoch*/) override {}

 private:
  explicit SequentialSampler(int64_t size) : size_(size) {}

  const int64_t size_;
};

}  // namespace rankwise

#endif  // RANKWISE_SAMPLERS_SAMPLING_SEQUENTIAL_SAMPLER_H_
